"""Owed: what an ended run still owes to others: its result to its parent, its successor, messages to its children.

How this survives a crash: the run ends but keeps its task until everything owed is done. If the process dies in
between, the task comes due again. The runner that takes it finds an ended run, reads what it owes from the log and does
it. Each part is idempotent: a message has a dedupe id, and a run is created only if it is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import msgspec

from buoy.core.batch.lots import job_end
from buoy.core.ids import RunId, chain_of
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import State, fold
from buoy.engine.batch.protocol import ended_message
from buoy.engine.run.mailbox import ChildEnd, Reason
from buoy.ports.records import Message


class SendMessage(msgspec.Struct, frozen=True):
    """A message for another run."""

    message: Message


class CreateRun(msgspec.Struct, frozen=True):
    """A run to create: a successor, or a detached child."""

    run_id: RunId
    created: e.WorkflowCreated


Owed: TypeAlias = SendMessage | CreateRun


def child_creation(run_id: RunId, parent: e.WorkflowCreated, started: e.ChildStarted) -> e.WorkflowCreated:
    """The first event of a child, from its parent's log alone. It belongs where its parent does."""
    return e.WorkflowCreated(
        workflow=started.workflow,
        input=started.input,
        version=started.version,
        policy=started.policy,
        queue=started.queue,
        stack=parent.stack,
        env=parent.env,
        parent=None if started.detach else e.Parent(run_id, started.leaf),
        by=run_id,
    )


def duties_of(state: State, ending: e.Ending, done: Collection[RunId] = ()) -> list[Owed]:
    """What this end makes necessary. `state` is that before the end: it still knows the open leaves.

    `done`: children that are known to be created or notified.
    """
    created = state.created
    assert created is not None
    found: list[Owed] = []
    if isinstance(ending, e.WorkflowCompleted) and ending.continued_as is not None:
        successor = msgspec.structs.replace(created, input=ending.next_input, version=state.version, by=state.run_id)
        found.append(CreateRun(ending.continued_as, successor))
    elif created.parent is not None:
        found.append(SendMessage(_end_message(state, created.parent, ending)))
    for leaf in state.leaves.values():
        if leaf.child is not None and leaf.child.detach and leaf.child.child not in done:
            found.append(CreateRun(leaf.child.child, child_creation(state.run_id, created, leaf.child)))
    if not isinstance(ending, e.WorkflowCompleted):
        found.extend(SendMessage(_cancel_message(state, leaf)) for leaf in state.open.values() if leaf.kind == "child")
    found.extend(
        SendMessage(_cancel_message(state, leaf))
        for leaf in state.leaves.values()
        if leaf.kind == "child" and leaf.phase == "cancelled"
    )
    found.extend(_left(state, started) for started in state.left_children() if started.child not in done)
    return found


def gives_up_children(state: State) -> bool:
    """Whether the run, which has not ended, has children that it no longer waits for. Its owner tells them."""
    given_up = any(leaf.kind == "child" and leaf.phase == "cancelled" for leaf in state.leaves.values())
    return given_up or bool(state.left_children())


def _left(state: State, started: e.ChildStarted) -> Owed:
    """What a run owes to a child that a branch left behind: its cancellation, or the start of a detached child."""
    assert state.created is not None
    if started.detach:
        return CreateRun(started.child, child_creation(state.run_id, state.created, started))
    return SendMessage(cancel_message(started.child, state.run_id))


def duties_left(run_id: RunId, events: Sequence[e.Event]) -> list[Owed]:
    """The duties of a run that ended, from its log."""
    end = fold(run_id, events).ending_seq
    ending = events[end - 1].body
    assert isinstance(ending, e.WorkflowCompleted | e.WorkflowFailed | e.WorkflowCancelled)
    state = fold(run_id, events[: end - 1])
    return [*_ends_of_jobs(state, events), *duties_of(state, ending)]


def _ends_of_jobs(state: State, events: Sequence[e.Event]) -> Iterator[Owed]:
    """Of a lot: how its jobs ended. The receiver ignores what it knows."""
    assert state.created is not None
    if state.created.workflow != e.LOT_WORKFLOW or state.created.parent is None:
        return
    ends = [job_end(each.body) for each in events if isinstance(each.body, e.StepCompleted | e.StepFailed)]
    sent = 0
    while sent < len(ends):
        message, sent = ended_message(state.run_id, state.created.parent.run, ends, sent)
        yield SendMessage(message)


def _end_message(state: State, parent: e.Parent, ending: e.Ending) -> Message:
    child = chain_of(state.run_id)[0]
    match ending:
        case e.WorkflowCompleted():
            end = ChildEnd(parent.leaf, child, "completed", result=ending.result)
        case e.WorkflowFailed():
            end = ChildEnd(parent.leaf, child, "failed", error=_short(ending.error))
        case e.WorkflowCancelled():
            why = e.ErrorInfo(type="Cancelled", message=ending.reason or "no reason was given", kind="cancelled")
            end = ChildEnd(parent.leaf, child, "cancelled", error=why)
    body = codec.encode(end, "the end of a child")
    return Message(parent.run, "child_finished", f"child:{child}:{state.head_seq}", body, by=state.run_id)


def _short(error: e.ErrorInfo) -> e.ErrorInfo:
    return msgspec.structs.replace(error, traceback=None)


def _cancel_message(state: State, leaf: Leaf) -> Message:
    return cancel_message(state.child_id(leaf.id), state.run_id)


def cancel_message(child: RunId, parent: RunId) -> Message:
    """A parent gives its child up. The dedupe id makes sending it again harmless."""
    body = codec.encode(Reason(f"its parent {parent} gave it up"), "a cancel request")
    return Message(child, "cancel", f"cancel:parent:{parent}", body, by=parent)
