"""`buoy recoveries`: the audit of how runs were brought back."""

from __future__ import annotations

import click

from buoy.cli.terminal import render
from buoy.cli.terminal.options.run_ids import optional_run_argument
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.operations.inspect.recoveries import RecoveryAudit, RecoveryEntry, recovery_audit, run_recoveries


@click.command()
@optional_run_argument
@click.option("--limit", type=click.IntRange(1, RUNS_PAGE_MAX), default=200, show_default=True, help="Runs per page.")
@click.option("--cursor", metavar="CURSOR", help="Continue where the last page ended.")
@shared_options
def recoveries(run_id: str | None, limit: int, cursor: str | None, store: str | None, as_json: bool) -> int:
    """List how runs were brought back: takeovers from dead runners, and recoveries. Newest runs first.

    Each line has the time, the run with the number of the event, who did it, and why. With RUN: only that run.

    \b
    Example:
      buoy recoveries
      buoy recoveries order-1 --json

    Exit code: 0 listed, 2 no such run, 5 store unusable.
    """
    found = go(_audit(run_id, cursor, limit, store))
    if as_json:
        print_json(found)
        return Exit.OK
    for entry in found.recoveries:
        say(_line(entry))
    if not found.recoveries:
        say("no recoveries" if found.cursor is None else "no recoveries of these runs")
    for each in found.unread:
        say(f"{each}  cannot be read; see `buoy why {each}`", err=True)
    if found.cursor is not None:
        say(f"more: --cursor {found.cursor}", err=True)
    return Exit.OK


def _line(entry: RecoveryEntry) -> str:
    branch = "" if entry.new_branch == entry.previous_branch else f", branch {entry.new_branch}"
    where = f"event {entry.seq}{branch}"
    return f"{render.local(entry.at)}  {entry.run_id}  {where}  by {entry.actor}  {render.one_line(entry.reason)}"


async def _audit(run_id: str | None, cursor: str | None, limit: int, store: str | None) -> RecoveryAudit:
    async with connected(store) as client:
        if run_id is not None:
            return await run_recoveries(client, run_id)
        return await recovery_audit(client, cursor, limit)
