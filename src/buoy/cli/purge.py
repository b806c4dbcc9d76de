"""`buoy purge`: delete runs that ended long ago."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, confirm, connected, duration, go, need_terminal, shared_options
from buoy.config import log_folder
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.maintenance.broken_runs import Salvaged, purge_broken
from buoy.operations.maintenance.purge import Purge, Purged, purge

_SHOWN_MAX = 20


@click.command("purge")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--older-than", "older_than_s", metavar="TIME", callback=duration,
              help="Only runs that ended at least so long ago: 30d, 12h...")  # fmt: skip
@click.option("--broken", is_flag=True, help="Remove RUN, which cannot be read. Copies its bytes first.")
@click.option("--export", "export", metavar="FILE", type=click.Path(path_type=Path),
              help="With --broken: write the copy to this new file. [RUN.broken.zip]")  # fmt: skip
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([each.value for each in sorted(TERMINAL)]),
    help="Only runs with this status; may be repeated. [all that ended]",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def purge_command(
    run_id: str | None,
    older_than_s: float | None,
    broken: bool,
    export: Path | None,
    statuses: tuple[str, ...],
    workflow: str | None,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Delete runs that ended long ago: their logs, inboxes, results and the output of their commands here.

    The only command that deletes events. Each run leaves a tombstone: 'buoy show' says what it was, and its id is not
    used again. Export what you may need with 'buoy export' first.

    With RUN and --broken: remove one run that cannot be read, with any status. Its bytes are copied to a zip file
    first. RUN must be the whole id. A run that can be read, or that a live process may hold, is refused.

    \b
    Example:
      buoy purge --older-than 30d --status completed --dry-run
      buoy purge order-1 --broken --export order-1.zip

    Exit code: 0 purged (or nothing to purge), 2 bad input or declined, 5 store unusable.
    """
    if (run_id is None) == broken or (older_than_s is None) != broken or (broken and (statuses or workflow)):
        raise BadInput(
            "which runs is not clear: give --older-than TIME for ended runs, or RUN and --broken for an unreadable one"
        )
    if run_id is not None:
        return _remove_broken(run_id, export or Path(f"{run_id}.broken.zip"), dry_run, yes, store, as_json=as_json)
    assert older_than_s is not None
    order = Purge(older_than_s=older_than_s, statuses=statuses, workflow=workflow, dry_run=dry_run)
    if not dry_run and not yes:
        need_terminal()
        _confirm_these(go(_purged(msgspec.structs.replace(order, dry_run=True), store)))
    done = go(_purged(order, store))
    if as_json:
        print_json(done)
    else:
        _show(done)
    return Exit.OK


def _confirm_these(would: Purged) -> None:
    """Names what would be deleted, and asks. Nothing to delete needs no answer."""
    if would.purged:
        _name(would, err=True)
        confirm(f"Delete {counted(would.purged, 'run')} for good?")


def _name(done: Purged, *, err: bool) -> None:
    for run_id in done.runs[:_SHOWN_MAX]:
        click.echo(run_id, err=err)
    more = done.purged - min(len(done.runs), _SHOWN_MAX)
    if more:
        click.echo(f"... and {more:,} more", err=True)


def _show(done: Purged) -> None:
    _name(done, err=False)
    verb = "would be purged" if done.dry_run else "purged"
    click.echo(f"{counted(done.purged, 'run')} {verb}{_left(done)}", err=True)


def _remove_broken(run_id: str, file: Path, dry_run: bool, yes: bool, store: str | None, *, as_json: bool) -> int:
    seen = go(_salvage(run_id, file, store, dry_run=True))
    if not dry_run:
        if not yes:
            say(f"run {run_id} cannot be read: {seen.reason}", err=True)
            confirm(f"Copy its {counted(seen.parts, 'part')} ({seen.bytes:,} bytes) to {file} and delete it for good?")
        seen = go(_salvage(run_id, file, store, dry_run=False))
    if as_json:
        print_json(seen)
    elif dry_run:
        say(f"run {run_id} would be purged, with {seen.bytes:,} bytes copied to {file}; broken: {seen.reason}")
    else:
        click.echo(
            f"run {run_id} was purged; its {seen.bytes:,} bytes are in {seen.file}; it was broken: {seen.reason}"
        )
    return Exit.OK


async def _salvage(run_id: str, file: Path, store: str | None, *, dry_run: bool) -> Salvaged:
    async with connected(store) as client:
        return await purge_broken(client, run_id, file, dry_run=dry_run)


def _left(done: Purged) -> str:
    kept = (
        f"; {counted(done.kept, 'run')} kept: they changed in the meantime, or owe a message to another run"
        if done.kept
        else ""
    )
    return kept + (f"; {counted(done.finished, 'purge')} finished that had been cut off" if done.finished else "")


async def _purged(order: Purge, store: str | None) -> Purged:
    async with connected(store) as client:
        return await purge(client, order, log_folder(client.store.name))
