"""`buoy release`: let a run go on that Buoy quarantined or held."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.run_ids import run_argument
from buoy.operations.resume import ReleasedRun, release_run


@click.command()
@run_argument
@shared_options
def release(run_id: str, store: str | None, as_json: bool) -> int:
    """Let a run go on that Buoy quarantined or held.

    A run that ended the processes that drove it, again and again, is quarantined; its crashes are counted anew from
    here on. Correct the cause first: `buoy why RUN` names it.

    \b
    Example:
      buoy release order-1

    Exit code: 0 done or asked for, 2 it is not held, 5 store unusable.
    """
    found = go(_release(run_id, store))
    if as_json:
        print_json(found)
        return Exit.OK
    click.echo(f"{found.text} (was held: {found.was})")
    if found.missing is not None:
        click.echo(f"nothing happens yet: {found.missing}", err=True)
    return Exit.OK


async def _release(run_id: str, store: str | None) -> ReleasedRun:
    async with connected(store) as client:
        return await release_run(client, run_id, wording(store, local))
