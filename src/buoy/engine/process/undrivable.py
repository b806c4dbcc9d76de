"""Undrivable runs: pauses a run that cannot be driven at all: its definition is gone, or taking it failed unexpectedly.

Invariants: one commit, as of any owner; a run that is held already is left as it is. Its end needs no definition: a
cancel request is met, and what an end owes to others is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.state import fold
from buoy.engine.read_log import unread_inbox
from buoy.engine.run.mailbox import Reason
from buoy.engine.run.owed import duties_left
from buoy.engine.run.run_time import run_now
from buoy.engine.services.commits import write_of
from buoy.ports.records import Message, Released, Task

if TYPE_CHECKING:
    from buoy.engine.process.runner import Runner


async def hold(runner: Runner, task: Task, log: Sequence[e.Event], pause: e.Paused) -> bool:
    """Pauses the run, or ends it if a request asks for that. False: another process moved the run on."""
    state = fold(task.run_id, log)
    if state.status in TERMINAL:
        runner.outbox.finish(task.run_id, duties_left(task.run_id, log))
        return True
    messages = await unread_inbox(runner.store, task.run_id, state.consumed)
    asked = next((each for each in messages if each.kind == "cancel" and each.number not in state.consumed), None)
    if asked is None and state.pause is not None:
        runner.releases.add(task.run_id, Released(due_at=None, now=runner.clock.now(), seen=_last(messages)))
        return True
    # The task of a run that ends is kept until what the end owes to others is done.
    change = Released(due_at=None, now=runner.clock.now(), seen=_last(messages)) if asked is None else None
    bodies = [pause] if asked is None else _end(asked)
    claimed = e.Claimed(runner=runner.id, cause=task.cause, evidence=task.evidence)
    at = await run_now(runner.store, runner.clock, task.run_id, state.updated_at)
    new = append(task.run_id, log, [claimed, *bodies], at, runner.ids.nonce())
    done = await runner.journal.commit(write_of(new, change))
    if done and asked is not None:
        runner.outbox.finish(task.run_id, duties_left(task.run_id, [*log, *new.events]))
    return done


def _end(asked: Message) -> list[e.Body]:
    """A spec undoes nothing, so there is nothing to run."""
    reason = codec.decode(asked.body, Reason, "a cancel request").reason
    return [
        e.CancelRequested(message=asked.number, reason=reason, by=asked.by),
        e.WorkflowCancelled(reason=reason),
    ]


def _last(messages: Sequence[Message]) -> int:
    return max((each.number for each in messages), default=0)
