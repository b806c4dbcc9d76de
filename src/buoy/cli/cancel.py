"""`buoy cancel`: cancel a run, or some jobs of a batch run."""

from __future__ import annotations

import click

from buoy.cli.terminal.job_changes import print_changed
from buoy.cli.terminal.lines.messages import print_request
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import connected, go, shared_options
from buoy.operations.control import messages
from buoy.operations.control.messages import RequestMade
from buoy.operations.slurm.allocations import end_allocations
from buoy.operations.slurm.recover import is_on_slurm
from buoy.operations.slurm.sync import sync_status
from buoy.operations.slurm.tend import END_S
from buoy.wiring.slurm import open_slurm


@click.command()
@run_argument
@click.argument("names", metavar="[JOB]...", nargs=-1)
@click.option("--reason", metavar="TEXT", help="Reason, for the record and for the caller that waits for the result.")
@shared_options
def cancel(run_id: str, names: tuple[str, ...], reason: str | None, store: str | None, as_json: bool) -> int:
    """Cancel a run: its code sees a cancellation, cleans up, and the run ends as cancelled.

    With names of jobs, cancel only those jobs of a batch run. Jobs that need them wait. Allocations of a run on Slurm
    are cancelled, too: those that wait at once, the others when their jobs have been stopped, or after 45 s.

    \b
    Example:
      buoy cancel order-1 --reason "ordered twice"
      buoy cancel nightly-7c2a train_3

    Exit code: 0 done or requested, 2 not possible, 5 store unusable.
    """
    if names:
        return print_changed("cancel", run_id, names, reason, store=store, as_json=as_json)
    return print_request(go(_cancel(run_id, reason, store)), as_json=as_json)


async def _cancel(run_id: str, reason: str | None, store: str | None) -> RequestMade:
    async with connected(store) as client:
        document = (await client.record(run_id)).document
        on_slurm = document.placement == "batch" and await is_on_slurm(client, document.run_id)
        made = await messages.cancel(client, run_id, reason)
        if on_slurm:
            slurm = open_slurm()
            await end_allocations(client, slurm, document.run_id, END_S)
            await sync_status(client, slurm, document.run_id, missed=())
        return made
