"""`buoy release`: continue a run that Buoy quarantined or held."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.operations.control.resume import ReleasedRun, release_run


@click.command()
@run_argument
@shared_options
def release(run_id: str, store: str | None, as_json: bool) -> int:
    """Continue a run that Buoy quarantined or held.

    Buoy quarantines a run that keeps crashing its worker. Correct the cause first: `buoy why RUN` names it. The release
    resets the count of crashes.

    \b
    Example:
      buoy release order-1

    Exit code: 0 done or requested, 2 the run is not held, 5 store unusable.
    """
    found = go(_release(run_id, store))
    if as_json:
        print_json(found)
        return Exit.OK
    say(f"{found.text} (was held: {found.was})")
    if found.missing is not None:
        say(f"nothing happens yet: {found.missing}", err=True)
    return Exit.OK


async def _release(run_id: str, store: str | None) -> ReleasedRun:
    async with connected(store) as client:
        return await release_run(client, run_id, wording(store, local))
