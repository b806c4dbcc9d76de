"""`buoy migrate`: maps renamed steps of active runs, so that new code can continue the runs."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.run_ids import optional_run_argument
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.control.migrate import Migrate, Migration, Migrations, migrate_run, migrate_workflow

_SHOWN_MAX = 20


@click.command()
@optional_run_argument
@click.option("--rename", "pairs", metavar="OLD=NEW", multiple=True, help="A step and its new name; may be repeated.")
@click.option(
    "--all",
    "workflow",
    metavar="WORKFLOW",
    help="Migrate all runs of this workflow that are paused because no code fits.",
)
@click.option("--to", "version", metavar="VERSION", help="Bind to this version of the code. [the one that did not fit]")
@click.option("--spec", "file", metavar="FILE", help="For runs of a spec: the file with the new names.")
@click.option("--dedupe", metavar="ID", help="Dedupe id for one run. A second request with the same id has no effect.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@shared_options
def migrate(
    run_id: str | None,
    pairs: tuple[str, ...],
    workflow: str | None,
    version: str | None,
    file: str | None,
    dedupe: str | None,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Map renamed steps for runs that started under the old names.

    From then on NEW owns what the log records of OLD; the log itself is not changed. Steps that have started keep
    their idempotency keys, question ids and child runs. A run that is paused because no code fits continues. Pause a
    run first if a live worker drives it. Name modules of a spec STEP/MODULE.

    \b
    Example:
      buoy migrate order-1 --rename charge=take_payment --dry-run
      buoy migrate --all checkout --rename charge=take_payment

    Exit code: 0 done, 1 with --all: some runs were not migrated, 2 not possible, 5 store unusable.
    """
    renamed = _renames(pairs)
    if (run_id is None) == (workflow is None):
        raise BadInput("which runs is not clear: give either RUN or --all WORKFLOW")
    if not renamed and file is None:
        raise BadInput("no renamed step is given; add one, for example --rename charge=take_payment")
    if workflow is not None and dedupe is not None:
        raise BadInput("--dedupe is for one run; leave it out with --all, which skips runs that were migrated")
    order = Migrate(renamed=renamed, version=version, file=file, dry_run=dry_run, dedupe=dedupe)
    found = go(_migrate(run_id, workflow, order, store))
    if as_json:
        print_json(found if workflow is not None else found.migrated[0])
    else:
        nothing = f"no run of {workflow} is paused because no code fits"
        say("\n".join(_lines(found)) if found.migrated or found.left else nothing)
    return Exit.FAILED if found.left else Exit.OK


def _renames(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        old, mark, new = pair.partition("=")
        if not mark or not old or not new:
            raise BadInput(f"invalid --rename {pair!r}; write OLD=NEW")
        if old in found:
            raise BadInput(f"--rename {pair!r}: {old!r} is renamed twice")
        found[old] = new
    return found


async def _migrate(run_id: str | None, workflow: str | None, order: Migrate, store: str | None) -> Migrations:
    async with connected(store) as client:
        if run_id is not None:
            return await migrate_run(client, run_id, order)
        assert workflow is not None
        return await migrate_workflow(client, workflow, order)


def _lines(found: Migrations) -> list[str]:
    lines: list[str] = []
    for each in found.migrated[:_SHOWN_MAX]:
        lines += _one(each)
    lines += [f"run {each.run_id} is left as it is: {each.reason}" for each in found.left[:_SHOWN_MAX]]
    total = len(found.migrated) + len(found.left)
    if total != 1:
        lines.append(f"{counted(len(found.migrated), 'run')} migrated, {len(found.left)} left")
    return lines


def _one(found: Migration) -> list[str]:
    verb = "is bound" if found.done else "would be bound"
    shown = [f"{old} to {new}" for old, new in list(found.leaves.items())[:_SHOWN_MAX]]
    more = len(found.leaves) - len(shown)
    rest = "continues" if found.goes_on else "keeps its status"
    return [
        f"run {found.run_id} {verb} to {found.version or 'the next code that fits'} (was {found.previous or 'none'})",
        f"  renamed:  {', '.join(shown) or 'nothing'}{f' and {more} more' if more else ''}",
        f"  the run:  {rest}",
    ]
