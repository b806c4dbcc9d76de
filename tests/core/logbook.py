"""Short ways to write a log down in a test."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.questions import Question
from buoy.core.log.state import State, fold

RUN = RunId("run-1")
BROKEN = e.ErrorInfo(type="ValueError", message="no")
NOTHING = msgspec.Raw(b"null")


def log(*bodies: e.Body, branch: int = 0, after: Iterable[e.Event] = ()) -> list[e.Event]:
    """The bodies as numbered events on a branch, following `after`. A new branch is the one of all that follow."""
    events = list(after)
    here = events[-1].branch if events and not branch else BranchId(branch)
    for body in bodies:
        if isinstance(body, e.BranchCreated):
            here = body.branch
        seq = len(events) + 1
        events.append(e.Event(seq=seq, at=1000.0 + seq, body=body, branch=here))
    return events


def folded(*bodies: e.Body) -> State:
    return fold(RUN, log(*bodies))


def one_by_one(events: Iterable[e.Event]) -> State:
    state = State(run_id=RUN)
    for event in events:
        state.apply(event)
    return state


def seqs(events: Iterable[e.Event]) -> list[int]:
    return [event.seq for event in events]


def created(**more: object) -> e.WorkflowCreated:
    return msgspec.structs.replace(e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"[]")), **more)


def claimed(runner: str = "r1", cause: str = "created") -> e.Claimed:
    return e.Claimed(runner=runner, cause=cause)


def started(leaf: str, attempt: int = 1) -> e.StepStarted:
    return e.StepStarted(leaf=LeafId(leaf), name=leaf.partition("#")[0], attempt=attempt)


def completed(leaf: str, message: int | None = None) -> e.StepCompleted:
    return e.StepCompleted(leaf=LeafId(leaf), message=message)


def failed(leaf: str) -> e.StepFailed:
    return e.StepFailed(leaf=LeafId(leaf), error=BROKEN)


def retrying(leaf: str, attempt: int = 1, due_at: float = 2000.0) -> e.RetryScheduled:
    return e.RetryScheduled(leaf=LeafId(leaf), attempt=attempt, due_at=due_at, error=BROKEN)


def asked(leaf: str, title: str = "Go?") -> e.InteractionRequested:
    return e.InteractionRequested(
        leaf=LeafId(leaf), question_id=f"q/{leaf}", question=Question(title=title, kind="confirm")
    )


def answered(leaf: str, message: int | None = 1) -> e.InteractionResponse:
    return e.InteractionResponse(
        leaf=LeafId(leaf), question_id=f"q/{leaf}", answer=msgspec.Raw(b"true"), message=message
    )


def awaited(leaf: str, due_at: float | None = None) -> e.SignalWaited:
    return e.SignalWaited(leaf=LeafId(leaf), name="packed", due_at=due_at)


def received(leaf: str, message: int | None = 1) -> e.SignalReceived:
    return e.SignalReceived(leaf=LeafId(leaf), message=message)


def timer(leaf: str, due_at: float = 3000.0) -> e.TimerStarted:
    return e.TimerStarted(leaf=LeafId(leaf), due_at=due_at)


def fired(leaf: str) -> e.TimerFired:
    return e.TimerFired(leaf=LeafId(leaf))


def child(leaf: str, *, detach: bool = False) -> e.ChildStarted:
    return e.ChildStarted(
        leaf=LeafId(leaf), child=RunId("child-1"), workflow="pack", input=msgspec.Raw(b"[]"), detach=detach
    )


def child_ended(leaf: str, status: str = "completed", message: int | None = 1) -> e.ChildFinished:
    return e.ChildFinished(leaf=LeafId(leaf), child=RunId("child-1"), status=status, message=message)


def undoing(leaf: str, attempt: int = 1) -> e.CompensationStarted:
    return e.CompensationStarted(leaf=LeafId(leaf), attempt=attempt)


def undone(leaf: str) -> e.CompensationCompleted:
    return e.CompensationCompleted(leaf=LeafId(leaf))


def branched(
    branch: int,
    cutoff: int,
    *,
    parent: int = 0,
    kept: tuple[str, ...] = (),
    dropped: tuple[str, ...] = (),
    cause: str = "recovery",
) -> e.BranchCreated:
    return e.BranchCreated(
        branch=BranchId(branch),
        parent=BranchId(parent),
        cutoff_seq=cutoff,
        kept=tuple(LeafId(leaf) for leaf in kept),
        dropped=tuple(LeafId(leaf) for leaf in dropped),
        cause=cause,
    )


PAUSED = e.Paused(reason="user")
RESUMED = e.Resumed()
INTERRUPTED = e.Interrupted(signal="SIGTERM", runner="r1")
CANCEL = e.CancelRequested(reason="enough")
DONE = e.WorkflowCompleted()
LOST = e.WorkflowFailed(error=BROKEN)
STOPPED = e.WorkflowCancelled(reason="enough")
