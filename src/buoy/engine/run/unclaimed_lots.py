"""Lots that no runner has, of a run that gave them up: the process that tells them so ends them.

Why: only a runner of jobs claims a lot, and after its run has ended none may come. No command of such a lot runs, so
its end needs no process of its own.
Invariant: the end is an append like any other: a runner that claims the lot at the same moment wins, or is fenced.
"""

from __future__ import annotations

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.state import fold
from buoy.engine.read_log import read_log
from buoy.engine.run.run_time import run_now
from buoy.engine.services.commits import commit_surely, write_of
from buoy.ports.host import Clock, Ids
from buoy.ports.records import Ended, RunRecord
from buoy.ports.store import Store


def is_unclaimed_lot(record: RunRecord | None) -> bool:
    """Whether this is a lot that has not ended, and no runner has it."""
    if record is None or record.holder is not None:
        return False
    return record.document.workflow == e.LOT_WORKFLOW and not record.document.ended


async def end_lot(store: Store, clock: Clock, ids: Ids, run_id: RunId, by: str) -> bool:
    """Ends a lot as cancelled. False: another process appended to its log since."""
    log = await read_log(store, run_id)
    state = fold(run_id, log)
    at = await run_now(store, clock, run_id, state.updated_at)
    reason = "its run gave it up"
    bodies: list[e.Body] = [
        e.Claimed(runner=by, cause="requested"),
        e.CancelRequested(reason=reason, by=by),
        e.WorkflowCancelled(reason=reason),
    ]
    new = append(run_id, log, bodies, at, ids.nonce())
    return await commit_surely(store, write_of(new, Ended()))
