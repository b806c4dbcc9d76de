"""`buoy purge`: delete runs that ended long ago."""

from __future__ import annotations

import click

from buoy.cli.output import print_json
from buoy.cli.program import Exit, confirm, connected, duration, go, shared_options
from buoy.config import log_folder
from buoy.core.lifecycle import TERMINAL
from buoy.core.phrases import counted
from buoy.recovery.purging import Purge, Purged, purge

_SHOWN_MAX = 20


@click.command("purge")
@click.option("--older-than", "older_than_s", metavar="TIME", required=True, callback=duration,
              help="Only runs that ended at least so long ago: 30d, 12h...")  # fmt: skip
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([each.value for each in sorted(TERMINAL)]),
    help="May be repeated. [all that ended]",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@shared_options
def purge_command(
    older_than_s: float,
    statuses: tuple[str, ...],
    workflow: str | None,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Delete runs that ended long ago, for good: their logs, inboxes and results, and what their commands wrote here.

    The only command that deletes anything. Of each run a tombstone is left: 'buoy show' tells what it was, and its id
    is not used again. Keep what you may need with 'buoy export' before.

    \b
    Example:
      buoy purge --older-than 30d --status completed --dry-run

    Exit code: 0 purged (or nothing to purge), 2 bad input or declined, 5 store unusable.
    """
    if not dry_run and not yes:
        confirm("Delete them for good?")
    order = Purge(older_than_s=older_than_s, statuses=statuses, workflow=workflow, dry_run=dry_run)
    done = go(_purged(order, store))
    if as_json:
        print_json(done)
        return Exit.OK
    for run_id in done.runs[:_SHOWN_MAX]:
        click.echo(run_id)
    more = done.purged - min(len(done.runs), _SHOWN_MAX)
    if more:
        click.echo(f"... and {more:,} more", err=True)
    verb = "would be purged" if dry_run else "purged"
    click.echo(f"{counted(done.purged, 'run')} {verb}{_left(done)}", err=True)
    return Exit.OK


def _left(done: Purged) -> str:
    kept = f"; {counted(done.kept, 'run')} kept: moved on meanwhile, or owed something to others" if done.kept else ""
    return kept + (f"; {counted(done.finished, 'purge')} finished that had been cut off" if done.finished else "")


async def _purged(order: Purge, store: str | None) -> Purged:
    async with connected(store) as client:
        return await purge(client, order, log_folder(client.store.url))
