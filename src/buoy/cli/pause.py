"""`buoy pause`: pause a run."""

from __future__ import annotations

import click

from buoy.cli.terminal.lines.messages import print_request
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import connected, go, shared_options
from buoy.operations.control import messages
from buoy.operations.control.messages import RequestMade


@click.command()
@run_argument
@click.option("--reason", metavar="TEXT", help="Reason, for the record.")
@shared_options
def pause(run_id: str, reason: str | None, store: str | None, as_json: bool) -> int:
    """Pause a run: no new step starts; running steps finish and are recorded.

    \b
    Example:
      buoy pause order-1 --reason "wait for the new price list"

    Exit code: 0 done or requested, 2 not possible, 5 store unusable.
    """
    return print_request(go(_pause(run_id, reason, store)), as_json=as_json)


async def _pause(run_id: str, reason: str | None, store: str | None) -> RequestMade:
    async with connected(store) as client:
        return await messages.pause(client, run_id, reason)
