"""Absence: the error for a run that is not in the store. It never was, or it was purged."""

from __future__ import annotations

from buoy.core.explain.phrases import utc_text
from buoy.core.ids import RunId
from buoy.errors import UnknownRun
from buoy.ports.store import Store


async def absent_run(store: Store, run_id: RunId) -> UnknownRun:
    """The error to raise."""
    stone = await store.archive.tombstone(run_id)
    if stone is None:
        return UnknownRun(f"no run {run_id!r} in {store.name}; `buoy ps --all` lists them")
    by = f" by {stone.by}" if stone.by else ""
    if stone.broken is not None:
        return UnknownRun(
            f"run {run_id} was purged {utc_text(stone.purged_at)}{by}: it could not be read ({stone.broken}); "
            "its id is not used again"
        )
    return UnknownRun(
        f"run {run_id} of {stone.workflow} was purged {utc_text(stone.purged_at)}{by}: it was {stone.status} "
        f"since {utc_text(stone.ended_at)}; its id is not used again"
    )
