"""`buoy sync-status`: compare a batch run's allocations with Slurm, and correct what is orphaned."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.options.slurm import orphan_lines
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.core.ids import RunId
from buoy.operations.slurm.sync import Synced
from buoy.operations.slurm.sync import sync_status as compare
from buoy.wiring.slurm import open_slurm


@click.command("sync-status")
@run_argument
@click.option("--dry-run", is_flag=True, help="Only show what would be corrected.")
@shared_options
def sync_status(run_id: str, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Find orphans of a batch run on Slurm, and correct them. No allocation is asked for.

    First allocations whose Slurm job ended, then those that vanished while they waited, then runners that were lost.
    Jobs of a lost runner are free for the next one. A Slurm that does not answer changes nothing.

    \b
    Example:
      buoy sync-status nightly-7c2a --dry-run

    Exit code: 0 nothing is stuck, 1 jobs are ready and no allocation is at Slurm, 2 bad input, 5 store or
    Slurm unusable.
    """
    found = go(_sync(RunId(run_id), store, dry_run=dry_run))
    if as_json:
        print_json(found)
    else:
        say("\n".join(orphan_lines(found.orphans, run_id, wording(store, local), dry_run=dry_run)))
    return Exit.FAILED if found.stuck else Exit.OK


async def _sync(run_id: RunId, store: str | None, *, dry_run: bool) -> Synced:
    async with connected(store) as client:
        return (await compare(client, open_slurm(), run_id, dry_run=dry_run))[0]
