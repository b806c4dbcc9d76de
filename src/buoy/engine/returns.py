"""Returns: brings a run back to an earlier step, on the user's word. What will run again is known before it is done.

Invariants: the branch is one commit on a log that nobody else drives meanwhile: a run that is driven is paused first,
and one that executes too long is left alone, with the pause taken back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from buoy.core import events as e
from buoy.core.branching import Plan, plan_return
from buoy.core.document import document
from buoy.core.ids import RunId
from buoy.core.state import fold
from buoy.engine.loading import read_log
from buoy.engine.requests import live_runners
from buoy.errors import WrongState
from buoy.ports import Committed, Released, RunRecord, Write

if TYPE_CHECKING:
    from buoy.engine.client import Client

_PAUSE_WAIT_S = 15.0
_TRIES = 5


async def plan(client: Client, run_id: RunId, to: str | None, *, keep_answers: bool) -> Plan:
    """What would be done, without doing it."""
    return plan_return(run_id, await read_log(client.store, run_id), to, keep_answers=keep_answers)


async def go_back(client: Client, run_id: RunId, to: str | None, *, cause: str, keep_answers: bool) -> Plan:
    """Makes the branch and lets the run go on from there."""
    for _ in range(_TRIES):
        record = await client.record(run_id)
        was_paused = record.document.pause is not None
        if await _driven(client, record):
            await _hold(client, run_id)
        made = await _branch(client, run_id, to, cause, keep_answers=keep_answers, stays_paused=was_paused)
        if made is not None:
            return made
    raise WrongState(f"run {run_id} moves all the time; pause it with `buoy pause {run_id}` and try again")


async def _driven(client: Client, record: RunRecord) -> bool:
    return any(each.info.id == record.holder for each in await live_runners(client))


async def _hold(client: Client, run_id: RunId) -> None:
    """Pauses a run that a live runner drives, and waits until that runner has let go of it."""
    if (await client.record(run_id)).document.pause is None:
        await client.pause(run_id, "to go back to an earlier step")
    deadline = client.clock.monotonic() + _PAUSE_WAIT_S
    while client.clock.monotonic() < deadline:
        record = await client.record(run_id)
        if record.document.ended or record.holder is None:
            return
        await client.store.changed(0.2)
        await asyncio.sleep(0)
    if (await client.record(run_id)).document.pause is not None:
        await client.resume(run_id)
    raise WrongState(f"run {run_id} still executes a step; try again when it has ended, or cancel the run first")


async def _branch(
    client: Client, run_id: RunId, to: str | None, cause: str, *, keep_answers: bool, stays_paused: bool
) -> Plan | None:
    """One commit; None if somebody else appended meanwhile."""
    log = await read_log(client.store, run_id)
    found = plan_return(run_id, log, to, keep_answers=keep_answers)
    state = fold(run_id, log)
    bodies: list[e.Body] = [e.Claimed(runner=client.actor, cause="requested"), *found.events(cause, client.actor)]
    if state.pause is not None and not stays_paused:
        bodies.insert(1, e.Resumed(by=client.actor))
    now = max(client.clock.now(), state.updated_at)
    events = [
        e.Event(
            log[-1].seq + place,
            now,
            body,
            found.branch if place == len(bodies) else state.branch,
            nonce=client.ids.nonce() if place == 1 else None,
        )
        for place, body in enumerate(bodies, 1)
    ]
    doc = document(fold(run_id, [*log, *events]))
    change = Released(due_at=None if stays_paused else now, cause="resumed")
    outcome = (await client.store.commit([Write(run_id, log[-1].seq, tuple(events), doc, change)]))[0]
    return found if isinstance(outcome, Committed) else None
