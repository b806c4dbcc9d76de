"""Requests without an owner: what a sender may do itself when nobody drives the run.

Invariant: only when no user code need run, and always as claim, request and release in one commit: a live owner that
nobody knew of makes it fail, and then the request goes through the inbox after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from buoy.core import events as e
from buoy.core.document import document
from buoy.core.lifecycle import RESTING, Status
from buoy.core.spec import knows
from buoy.core.state import fold
from buoy.engine.duties import duties_of
from buoy.engine.loading import read_log
from buoy.engine.messages import CONTROL
from buoy.ports import Committed, Ended, Released, RunnerRecord, RunRecord, TaskChange, Write

if TYPE_CHECKING:
    from buoy.engine.client import Client


class Requested(msgspec.Struct, frozen=True):
    """`done`: it has happened. Else it is stored, and `text` says who will see to it."""

    done: bool
    text: str


async def live_runners(client: Client) -> list[RunnerRecord]:
    """The runners that are not known to be gone."""
    return [each for each in await client.store.runners() if client.liveness.proof_of_death(each) is None]


async def driven(client: Client, record: RunRecord) -> bool:
    """Whether a runner that is not known to be gone holds the run."""
    return any(each.info.id == record.holder for each in await live_runners(client))


async def waits_for_whom(client: Client, record: RunRecord) -> str:
    """Who will see to a request, in words."""
    doc = record.document
    runners = await live_runners(client)
    if any(each.info.id == record.holder for each in runners):
        return f"requested; runner {record.holder} drives the run and will see to it"
    if any(knows(each.info.workflows, doc.workflow) and doc.workflow not in each.info.unable for each in runners):
        return "requested; a live worker will take the run and see to it"
    return f"requested; no live worker knows workflow {doc.workflow}: start one with `buoy worker`"


async def direct_request(client: Client, record: RunRecord, kind: str, reason: str | None) -> Requested | None:
    """Does it at once if nobody drives the run and none of its code need run; None if it must go through the inbox."""
    doc = record.document
    quiet = doc.status in RESTING or doc.status in (Status.PENDING, Status.PAUSED, Status.INTERRUPTED)
    if not quiet or await _somebody_will(client, record, kind):
        return None
    log = await read_log(client.store, doc.run_id)
    state = fold(doc.run_id, log)
    if any(each.kind in CONTROL and each.number not in state.consumed for each in await client.store.inbox(doc.run_id)):
        return None  # requests count in their order: this one must not overtake those
    compensated = any(isinstance(each.body, e.StepStarted) and each.body.compensate for each in log)
    if state.head_seq != doc.head_seq or (kind == "cancel" and compensated):
        return None
    bodies: list[e.Body] = [e.Claimed(runner=client.actor, cause="requested")]
    now = max(client.clock.now(), state.updated_at)
    # `seen` stays as it is: whoever consumed nothing must not hide messages from the next owner.
    change: TaskChange = Released(due_at=None, cause="resumed")
    match kind:
        case "pause":
            bodies.append(e.Paused(reason="user", detail=reason, by=client.actor))
        case "resume":
            bodies.append(e.Resumed(by=client.actor))
            change = Released(due_at=client.clock.now(), cause="resumed")
        case _:
            bodies.append(e.CancelRequested(reason=reason, by=client.actor))
            cancelled = e.WorkflowCancelled(reason=reason)
            bodies.append(cancelled)
            # What the end owes to others (a word to its parent...) is done by whoever takes the task.
            owes = bool(duties_of(state, cancelled))
            change = Released(due_at=client.clock.now(), cause="requested") if owes else Ended()
    events = [
        e.Event(state.head_seq + place, now, body, state.branch, nonce=client.ids.nonce() if place == 1 else None)
        for place, body in enumerate(bodies, 1)
    ]
    for event in events:
        state.apply(event)
    write = Write(doc.run_id, doc.head_seq, tuple(events), document(state), change)
    outcome = (await client.store.commit([write]))[0]
    return Requested(done=True, text=f"run {doc.run_id} is {state.status}") if isinstance(outcome, Committed) else None


async def _somebody_will(client: Client, record: RunRecord, kind: str) -> bool:
    """Whether a live runner holds the run, or (for a cancellation, whose clean-up code should run) could take it."""
    runners = await live_runners(client)
    if any(each.info.id == record.holder for each in runners):
        return True
    able = any(knows(each.info.workflows, record.document.workflow) for each in runners)
    return kind == "cancel" and able and record.document.status is not Status.PENDING
