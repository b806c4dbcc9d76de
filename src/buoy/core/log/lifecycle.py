"""Lifecycle: the statuses of a run, and which event may be appended in which status.

Invariant: every arrow is in `MOVES`; what is not there is refused before it is written.
"""

from __future__ import annotations

from enum import StrEnum

from buoy.core.log import events as e
from buoy.errors import WrongState


class Status(StrEnum):
    """What the log says. Health (live, dead, suspect...) is a verdict of now and never stored here."""

    PENDING = "pending"
    RUNNING = "running"
    AWAITING_INPUT = "awaiting_input"
    WAITING_SIGNAL = "waiting_signal"
    WAITING = "waiting"
    COMPENSATING = "compensating"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    # In another store now: this log has ended, the run has not.
    MOVED = "moved"

    # An enum hashes in Python; as a string it hashes in C, and every event asks several sets for its status.
    __hash__ = str.__hash__


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.MOVED})
_HERE = frozenset(Status) - {Status.MOVED}
# Active runs need an owner, now or when their wait is over.
ACTIVE = frozenset(Status) - TERMINAL - {Status.PAUSED}
# Waiting runs execute nothing: they are woken by a time or a message.
RESTING = frozenset({Status.AWAITING_INPUT, Status.WAITING_SIGNAL, Status.WAITING})
_GOING = RESTING | {Status.RUNNING, Status.COMPENSATING}

# Events that only workflow code causes (except later attempts).
BEGINS = (
    e.StepStarted,
    e.JobOffered,
    e.ModuleStarted,
    e.InteractionRequested,
    e.SignalWaited,
    e.TimerStarted,
    e.ChildStarted,
    e.LeafCancelled,
    e.CompensationStarted,
)
# Leaves under way may still end while the run is paused or interrupted.
ENDS = (
    e.StepCompleted,
    e.StepFailed,
    e.JobHeld,
    e.RetryScheduled,
    e.ModuleCompleted,
    e.ModuleFailed,
    e.InteractionResponse,
    e.SignalReceived,
    e.TimerFired,
    e.ChildFinished,
    e.CompensationRetryScheduled,
    e.CompensationCompleted,
    e.CompensationFailed,
)
_NOT_ENDED = ACTIVE | {Status.PAUSED}

MOVES: dict[type[e.Payload], frozenset[Status]] = {
    **{kind: frozenset(_GOING) for kind in BEGINS},
    **{kind: frozenset(_GOING | {Status.PAUSED, Status.INTERRUPTED}) for kind in ENDS},
    e.WorkflowCreated: frozenset(),  # only ever the first event
    e.Claimed: _HERE,  # of an ended run too: to branch it
    e.Paused: ACTIVE,
    e.Resumed: frozenset({Status.PAUSED}),
    e.Interrupted: frozenset(_GOING | {Status.PAUSED}),
    e.CancelRequested: _NOT_ENDED,
    e.JumpRequested: _HERE,
    e.BranchCreated: _HERE,
    e.WorkflowRecovered: _HERE,
    e.VersionBound: _NOT_ENDED,
    e.MessageRefused: _HERE,
    e.JobsEnded: _NOT_ENDED,
    e.JobsReset: _NOT_ENDED,
    e.JobsStopped: _NOT_ENDED,
    e.ClusterChanged: _NOT_ENDED,
    e.Published: _NOT_ENDED,
    e.Moved: _HERE,
    e.WorkflowCompleted: frozenset(_GOING),
    e.WorkflowFailed: _NOT_ENDED,
    e.WorkflowCancelled: _NOT_ENDED,
}


def allowed(status: Status | None, kind: type[e.Payload]) -> bool:
    """Whether an event of this kind may be appended in this status; None is a run without any event."""
    if status is None:
        return kind is e.WorkflowCreated
    return status in MOVES[kind]


def check_move(status: Status | None, kind: type[e.Payload]) -> None:
    """Refuses an event that has no arrow in the table."""
    if not allowed(status, kind):
        here = "does not exist yet" if status is None else f"is {status}"
        raise WrongState(f"{e.event_name(kind)} is not possible: the run {here}")
