"""`buoy signal`: send a signal to a run."""

from __future__ import annotations

import click

from buoy.cli.terminal.lines.messages import print_sent
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import connected, go, shared_options
from buoy.operations.control import messages
from buoy.operations.control.messages import Sent
from buoy.operations.targets.inputs import parse_json


@click.command()
@run_argument
@click.argument("name", metavar="NAME")
@click.argument("payload", metavar="[PAYLOAD_JSON]", required=False)
@click.option("--dedupe", metavar="ID", help="Dedupe id. A second signal with the same id has no effect.")
@shared_options
def signal(run_id: str, name: str, payload: str | None, dedupe: str | None, store: str | None, as_json: bool) -> int:
    """Send a signal to a run. The signal is kept until the workflow waits for it.

    Prints a note if the run does not wait for that name now: the name may be a typo.

    \b
    Example:
      buoy signal order-1 packed '{"boxes": 2}' --dedupe scan-17

    Exit code: 0 stored, 2 bad input or no such run, 5 store unusable.
    """
    body = None if payload is None else parse_json(payload, "PAYLOAD_JSON")
    return print_sent(go(_signal(run_id, name, body, dedupe, store)), as_json=as_json)


async def _signal(run_id: str, name: str, body: object, dedupe: str | None, store: str | None) -> Sent:
    async with connected(store) as client:
        return await messages.signal(client, run_id, name, body, dedupe)
