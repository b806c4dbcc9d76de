"""Transitions: what each event does to a run's state. One small function for each payload, and the table of them.

Invariant: a transition reads only the state and the event, so that every fold of a log gives the same state.
"""

from __future__ import annotations

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.job_transitions import JOB_HANDLERS
from buoy.core.log.leaf import Leaf, LeafKind
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.pause import Pause
from buoy.core.log.state import HANDLERS, RUNNING, State
from buoy.core.log.takeovers import BROUGHT_BACK
from buoy.core.log.weight import published_bytes


def _created(state: State, event: e.Event, body: e.WorkflowCreated) -> None:
    if state.created is not None:
        return  # noted as an anomaly; a second birth must not undo what happened since the first
    state.created = body
    state.created_at = event.at
    state.version = body.version
    state.status = Status.PENDING


def _claimed(state: State, event: e.Event, body: e.Claimed) -> None:
    state.claims += 1
    if body.cause in BROUGHT_BACK:
        state.takeovers += 1
    if body.cause in ("requested", "recovered"):
        return  # the claimer only appends a request and releases at once: it drives nothing
    state.owner = body.runner
    state.interrupted = False


def _paused(state: State, event: e.Event, body: e.Paused) -> None:
    state.consume(event, body.message)
    tried = body.tried_version if body.reason == "version" else None
    if tried is not None and tried not in state.misfits:
        state.misfits = (*state.misfits, tried)
    state.pause = Pause(
        body.reason,
        body.detail,
        event.at,
        body.by,
        body.message,
        body.expires_at,
        body.tried_version,
        body.difference,
        state.misfits,
    )


def _resumed(state: State, event: e.Event, body: e.Resumed) -> None:
    state.consume(event, body.message)
    state.pause = None
    if body.version is None:
        state.misfits = ()  # a person wants it to continue with any code


def _interrupted(state: State, event: e.Event, body: e.Interrupted) -> None:
    state.interrupted = True


def _cancel_requested(state: State, event: e.Event, body: e.CancelRequested) -> None:
    state.consume(event, body.message)
    state.cancel = body


def _branch_created(state: State, event: e.Event, body: e.BranchCreated) -> None:
    """Only counts: `fold` hides the events. A live state must be folded again after a branch."""
    state.branch = body.branch
    state.branch_count += 1
    state.misfits = ()
    if body.cause in ("jump", "retry"):
        for leaf in body.dropped:
            state.raise_epoch(leaf)
    if state.status in TERMINAL:
        state.status = Status.RUNNING
        state.error = None
        state.cause_leaf = None
        state.cause_child = None
        state.cancel = None
        state.ending_seq = 0


def _recovered(state: State, event: e.Event, body: e.WorkflowRecovered) -> None:
    state.recoveries += 1


def _version_bound(state: State, event: e.Event, body: e.VersionBound) -> None:
    state.version = body.version
    state.misfits = ()


def _published(state: State, event: e.Event, body: e.Published) -> bool:
    state.published += published_bytes(body)
    return True


def _consumed(state: State, event: e.Event, body: e.JumpRequested | e.MessageRefused) -> None:
    state.consume(event, body.message)


def _moved(state: State, event: e.Event, body: e.Moved) -> None:
    state.moved_to = body.to
    _finish(state, event, Status.MOVED)


def _step_started(state: State, event: e.Event, body: e.StepStarted) -> bool:
    leaf_id = body.leaf
    if body.group or leaf_id in state.leaves:
        _begin_step(state, event, leaf_id, "group" if body.group else "step", body.name, body.attempt)
        return False
    # `begin`, without its questions: half of all events are such.
    state.leaves[leaf_id] = state.open[leaf_id] = Leaf(
        leaf_id, "step", body.name, event.at, "open", body.attempt, None, None, None, None, None, event.seq
    )
    state.active += 1
    return state.status is RUNNING


def _module_started(state: State, event: e.Event, body: e.ModuleStarted) -> None:
    _begin_step(state, event, body.leaf, "group" if body.group else "module", body.module, body.attempt)


def _begin_step(state: State, event: e.Event, leaf_id: LeafId, kind: LeafKind, name: str, attempt: int) -> None:
    leaf = state.open.get(leaf_id)
    if leaf is None:
        state.begin(Leaf(leaf_id, kind, name, event.at, "open", attempt, None, None, None, None, None, event.seq))
        return
    state.set_phase(leaf, "open")
    leaf.attempt = attempt
    leaf.due_at = None
    leaf.since = event.at


def _completed(state: State, event: e.Event, body: e.StepCompleted) -> bool:
    if body.message is not None:
        state.consume(event, body.message)
    state.end(event, body.leaf, "completed")
    return state.status is RUNNING and (state.active > 0 or not state.open)


def _ended(state: State, event: e.Event, body: e.ModuleCompleted | e.TimerFired) -> None:
    state.end(event, body.leaf, "completed")


def _failed(state: State, event: e.Event, body: e.StepFailed | e.ModuleFailed) -> None:
    if isinstance(body, e.StepFailed):
        state.consume(event, body.message)
    state.end(event, body.leaf, "failed", body.error)


def _retry_scheduled(state: State, event: e.Event, body: e.RetryScheduled) -> None:
    _try_again(state, event, body.leaf, body)


def _try_again(
    state: State, event: e.Event, leaf_id: LeafId, body: e.RetryScheduled | e.CompensationRetryScheduled
) -> None:
    leaf = state.open.get(leaf_id)
    if leaf is None:
        state.odd(f"event {event.seq}: retry of {leaf_id}, which is not open")
        return
    state.set_phase(leaf, "retrying")
    leaf.due_at = body.due_at
    leaf.error = body.error
    leaf.attempt = body.attempt


def _asked(state: State, event: e.Event, body: e.InteractionRequested) -> None:
    state.begin(
        Leaf(
            id=body.leaf,
            kind="ask",
            name=body.question.title,
            since=event.at,
            question_id=body.question_id,
            question=body.question,
            started_seq=event.seq,
        )
    )


def _answered(state: State, event: e.Event, body: e.InteractionResponse) -> None:
    state.consume(event, body.message)
    state.end(event, body.leaf, "completed")


def _signal_waited(state: State, event: e.Event, body: e.SignalWaited) -> None:
    state.begin(
        Leaf(id=body.leaf, kind="signal", name=body.name, since=event.at, due_at=body.due_at, started_seq=event.seq)
    )


def _signal_received(state: State, event: e.Event, body: e.SignalReceived) -> None:
    state.consume(event, body.message)
    state.end(event, body.leaf, "completed")


def _timer_started(state: State, event: e.Event, body: e.TimerStarted) -> None:
    state.begin(
        Leaf(id=body.leaf, kind="timer", name="timer", since=event.at, due_at=body.due_at, started_seq=event.seq)
    )


def _leaf_cancelled(state: State, event: e.Event, body: e.LeafCancelled) -> None:
    state.end(event, body.leaf, "cancelled")


def _child_started(state: State, event: e.Event, body: e.ChildStarted) -> None:
    if body.workflow == e.LOT_WORKFLOW:
        state.lots += 1
        state.open_lots[body.queue] = state.open_lots.get(body.queue, 0) + 1
    state.begin(Leaf(id=body.leaf, kind="child", name=body.workflow, since=event.at, started_seq=event.seq, child=body))
    if body.detach:
        state.end(event, body.leaf, "completed")


def _child_finished(state: State, event: e.Event, body: e.ChildFinished) -> None:
    state.consume(event, body.message)
    state.end(event, body.leaf, "completed" if body.status == "completed" else "failed", body.error)


def _compensation_started(state: State, event: e.Event, body: e.CompensationStarted) -> None:
    _begin_step(state, event, compensation_leaf(body.leaf), "compensation", body.leaf, body.attempt)


def _compensation_retry_scheduled(state: State, event: e.Event, body: e.CompensationRetryScheduled) -> None:
    _try_again(state, event, compensation_leaf(body.leaf), body)


def _compensation_completed(state: State, event: e.Event, body: e.CompensationCompleted) -> None:
    state.end(event, compensation_leaf(body.leaf), "completed")


def _compensation_failed(state: State, event: e.Event, body: e.CompensationFailed) -> None:
    state.end(event, compensation_leaf(body.leaf), "failed", body.error)


def compensation_leaf(leaf: LeafId) -> LeafId:
    """The id of a leaf's compensation among the open leaves."""
    return LeafId(f"{leaf}!compensation")


def _workflow_completed(state: State, event: e.Event, body: e.WorkflowCompleted) -> None:
    _finish(state, event, Status.COMPLETED)


def _workflow_failed(state: State, event: e.Event, body: e.WorkflowFailed) -> None:
    state.error = body.error
    state.cause_leaf = body.cause_leaf
    state.cause_child = body.cause_child
    _finish(state, event, Status.FAILED)


def _workflow_cancelled(state: State, event: e.Event, body: e.WorkflowCancelled) -> None:
    if body.reason:
        state.error = e.ErrorInfo(type="Cancelled", message=body.reason, retryable=False, kind="cancelled")
    _finish(state, event, Status.CANCELLED)


def _finish(state: State, event: e.Event, status: Status) -> None:
    state.status = status
    state.ending_seq = event.seq
    state.pause = None
    state.open.clear()
    state.open_lots.clear()
    state.held = 0
    state.active = 0
    state.tally.clear()


HANDLERS.update(
    {
        e.WorkflowCreated: _created,
        e.Claimed: _claimed,
        e.Paused: _paused,
        e.Resumed: _resumed,
        e.Interrupted: _interrupted,
        e.CancelRequested: _cancel_requested,
        e.JumpRequested: _consumed,
        e.BranchCreated: _branch_created,
        e.WorkflowRecovered: _recovered,
        e.VersionBound: _version_bound,
        e.MessageRefused: _consumed,
        e.Published: _published,
        e.Moved: _moved,
        e.StepStarted: _step_started,
        e.StepCompleted: _completed,
        e.StepFailed: _failed,
        e.RetryScheduled: _retry_scheduled,
        e.ModuleStarted: _module_started,
        e.ModuleCompleted: _ended,
        e.ModuleFailed: _failed,
        e.InteractionRequested: _asked,
        e.InteractionResponse: _answered,
        e.SignalWaited: _signal_waited,
        e.SignalReceived: _signal_received,
        e.TimerStarted: _timer_started,
        e.TimerFired: _ended,
        e.LeafCancelled: _leaf_cancelled,
        e.ChildStarted: _child_started,
        e.ChildFinished: _child_finished,
        e.CompensationStarted: _compensation_started,
        e.CompensationRetryScheduled: _compensation_retry_scheduled,
        e.CompensationCompleted: _compensation_completed,
        e.CompensationFailed: _compensation_failed,
        e.WorkflowCompleted: _workflow_completed,
        e.WorkflowFailed: _workflow_failed,
        e.WorkflowCancelled: _workflow_cancelled,
    }
)
HANDLERS.update(JOB_HANDLERS)
