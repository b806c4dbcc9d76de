"""Spec absence: pauses a run that cannot be driven at all: its definition is gone, or taking it failed unexpectedly.

Invariants: one commit, as of any owner; a run that is held already is left as it is. Its end needs no definition: a
cancel request is met, and what an end owes to others is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buoy.core import codec
from buoy.core import events as e
from buoy.core.document import document
from buoy.core.lifecycle import TERMINAL
from buoy.core.state import fold
from buoy.engine.duties import duties_left
from buoy.engine.messages import Reason
from buoy.ports import Committed, Message, Released, Task, Write

if TYPE_CHECKING:
    from buoy.engine.intake import Holder


async def hold(
    runner: Holder, task: Task, log: Sequence[e.Event], messages: Sequence[Message], pause: e.Paused
) -> bool:
    """Pauses the run, or ends it if somebody asked for that. False: somebody else moved the run on."""
    state = fold(task.run_id, log)
    if state.status in TERMINAL:
        runner.births.finish(task.run_id, duties_left(task.run_id, log))
        return True
    asked = next((each for each in messages if each.kind == "cancel" and each.number not in state.consumed), None)
    if asked is None and state.pause is not None:
        runner.releases.add(task.run_id, Released(due_at=None, seen=_last(messages)))
        return True
    # The task of a run that ends is kept until what the end owes to others is done.
    change = Released(due_at=None, seen=_last(messages)) if asked is None else None
    bodies = [pause] if asked is None else _end(asked)
    claimed = e.Claimed(runner=runner.id, cause=task.cause, evidence=task.evidence)
    now = max(runner.clock.now(), state.updated_at)
    events = tuple(
        e.Event(state.head_seq + place, now, body, state.branch, nonce=runner.ids.nonce() if place == 1 else None)
        for place, body in enumerate([claimed, *bodies], 1)
    )
    doc = document(fold(task.run_id, [*log, *events]))
    (outcome,) = await runner.store.commit([Write(task.run_id, state.head_seq, events, doc, change)])
    if isinstance(outcome, Committed) and asked is not None:
        runner.births.finish(task.run_id, duties_left(task.run_id, [*log, *events]))
    return isinstance(outcome, Committed)


def _end(asked: Message) -> list[e.Body]:
    """A spec undoes nothing, so there is nothing to run."""
    reason = codec.decode(asked.body, Reason, "a cancel request").reason
    return [
        e.CancelRequested(message=asked.number, reason=reason, by=asked.by),
        e.WorkflowCancelled(reason=reason),
    ]


def _last(messages: Sequence[Message]) -> int:
    return max((each.number for each in messages), default=0)
