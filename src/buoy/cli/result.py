"""`buoy result`: the result of a run, with an exit code for how it ended."""

from __future__ import annotations

import click

from buoy.cli.terminal.lines.outcomes import print_outcome
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import connected, duration, go, shared_options
from buoy.operations.control.outcome import RunOutcome, outcome, wait_for_outcome


@click.command()
@run_argument
@click.option("--wait", is_flag=True, help="Wait until the run has ended.")
@click.option(
    "--timeout", metavar="TIME", callback=duration, help="Wait at most so long, for example 30s; implies --wait."
)
@shared_options
def result(run_id: str, wait: bool, timeout: float | None, store: str | None, as_json: bool) -> int:
    """Print the result of a run as JSON.

    \b
    Example:
      buoy result order-1 --timeout 30s

    Exit code: 0 completed, 1 failed, 2 no such run, 3 cancelled, 4 not ended yet, 5 store unusable.
    """
    found = go(_result(run_id, store, wait=wait or timeout is not None, timeout_s=timeout))
    return print_outcome(found, as_json=as_json)


async def _result(run_id: str, store: str | None, *, wait: bool, timeout_s: float | None) -> RunOutcome:
    async with connected(store) as client:
        return await (wait_for_outcome(client, run_id, timeout_s) if wait else outcome(client, run_id))
