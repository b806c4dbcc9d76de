"""Job changes: sends a request about jobs, and says what becomes of it."""

from __future__ import annotations

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go
from buoy.core.ids import RunId
from buoy.operations.batch.changes import Change, JobsChanged, change_jobs


def print_changed(
    change: Change, run_id: str, names: tuple[str, ...], reason: str | None, *, store: str | None, as_json: bool
) -> Exit:
    """Asks the run to reset, cancel or disable these jobs."""
    found = go(_change(change, run_id, names, reason, store))
    if as_json:
        print_json(found)
    else:
        say(f"requested: {change} of {', '.join(found.jobs)}; {found.text}")
    return Exit.OK


async def _change(
    change: Change, run_id: str, names: tuple[str, ...], reason: str | None, store: str | None
) -> JobsChanged:
    async with connected(store) as client:
        return await change_jobs(client, RunId(run_id), change, names, reason)
