"""Events: the facts that a run's log is made of.

Invariants: names and meanings never change once stored; a payload that must change gets a higher version in `VERSIONS`
and an upcast in `core.log.codec`. Every leaf event names its leaf, so that a branch can keep or drop it.
All times in events are the run's (see `times`): its writers tell them, and they never go back.
Absent on purpose: any reading of them. `core.log.state` folds, `core.log.lineage` hides.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log.cluster_changes import ClusterChange
from buoy.core.log.questions import Question

# Left out of the stored form when it stands for "nothing".
NULL = msgspec.Raw(b"null")
# The workflow of runs that are lots of jobs of another run.
LOT_WORKFLOW = "lot:"


class Payload(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True, gc=False):
    """Base of all payloads. The tag is the event's stable name.

    Facts hold no cycles, so the garbage collector need not look at them: a long log would keep it busy.
    """


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as the log keeps it: enough to tell a person why, and to decide about a retry."""

    type: str
    message: str
    retryable: bool = True
    # transient, permanent, resource, misconfiguration, cancelled, orphaned, unknown
    kind: str = "unknown"
    traceback: str | None = None
    # What was measured about a command that failed: exit_code, signal, duration_s, peak_memory_bytes...
    # Of a step that timed out while its thread still acts: thread.
    facts: dict[str, str | int | float | bool | None] = {}
    # The error's class and its bases, `module:name`, so that workflow code can catch it by them. Old logs have none.
    classes: tuple[str, ...] = ()
    # The text of the original error, where `message` says more than that.
    reason: str | None = None

    def __str__(self) -> str:
        # An error without a text has its class as its message.
        return self.type if self.message == self.type else f"{self.type}: {self.message}"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first difference between a log and its code: at event `seq` the log has one leaf, the code asked for another.

    Without `code_leaf` the code asked for nothing. Both the same: it asked for that leaf in another way.
    """

    log_leaf: LeafId | None = None
    code_leaf: LeafId | None = None
    seq: int | None = None


class Parent(msgspec.Struct, frozen=True):
    """The leaf of another run that started this one."""

    run: RunId
    leaf: LeafId


# Run-level events: folded over the whole log, never hidden by a branch.


class WorkflowCreated(Payload, frozen=True, tag="workflow_created", kw_only=True):
    workflow: str
    input: msgspec.Raw
    version: str = ""
    policy: str = "resume"
    queue: str = "default"
    stack: str | None = None
    env: str | None = None
    parent: Parent | None = None
    by: str | None = None
    # "batch": the owner executes no command, it offers them as jobs to runners.
    placement: str = "local"


class Claimed(Payload, frozen=True, tag="claimed", kw_only=True):
    """A runner took the run. `cause`: created, woken, taken_over, interrupted, resumed, requested, recovered."""

    runner: str
    cause: str
    evidence: dict[str, str | int | float | bool | None] = {}


class Paused(Payload, frozen=True, tag="paused", kw_only=True):
    """`reason`: user, rewind, version, nondeterminism, input, poison, hold, jobs. `expires_at`: the run resumes then.

    `tried_version` and `difference`: of code that did not fit the log. `detail` is for people alone.
    """

    reason: str
    detail: str | None = None
    message: int | None = None
    by: str | None = None
    expires_at: float | None = None
    tried_version: str | None = None
    difference: Difference | None = None


class Resumed(Payload, frozen=True, tag="resumed", kw_only=True):
    """`version`: the code that ended a pause for its version, to see whether it fits. None: any other reason."""

    message: int | None = None
    by: str | None = None
    version: str | None = None


class Interrupted(Payload, frozen=True, tag="interrupted", kw_only=True):
    """The runner stopped gracefully and gave the run back."""

    signal: str
    runner: str


class CancelRequested(Payload, frozen=True, tag="cancel_requested", kw_only=True):
    message: int | None = None
    reason: str | None = None
    by: str | None = None


class JumpRequested(Payload, frozen=True, tag="jump_requested", kw_only=True):
    to: LeafId
    new_branch: BranchId
    message: int | None = None
    by: str | None = None


class BranchCreated(Payload, frozen=True, tag="branch_created", kw_only=True):
    """`cause`: recovery, jump, retry, restart. Only jump and retry raise the epoch of what they drop.

    So a jump or retry names in `dropped` every leaf that is to run again, also those that its cutoff hides anyway.
    """

    branch: BranchId
    parent: BranchId
    cutoff_seq: int
    kept: tuple[LeafId, ...] = ()
    dropped: tuple[LeafId, ...] = ()
    cause: str = "recovery"


class WorkflowRecovered(Payload, frozen=True, tag="workflow_recovered", kw_only=True):
    reason: str
    previous_branch: BranchId
    new_branch: BranchId
    cutoff_event: int
    finding: str
    evidence: dict[str, str | int | float | bool | None] = {}
    policy: str = "resume"
    actor: str = ""


class VersionBound(Payload, frozen=True, tag="version_bound", kw_only=True):
    """`version` empty: any code that fits. `renamed`: by which new names all before it is read."""

    version: str
    previous: str | None = None
    detail: str | None = None
    renamed: dict[str, str] = {}


class MessageRefused(Payload, frozen=True, tag="message_refused", kw_only=True):
    """A message was read and had no effect: a late answer, a second pause... It is consumed anyway."""

    message: int
    reason: str


class JobLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of one job that replace those of its spec. None: as the spec has it."""

    memory_bytes: int | None = None
    time_s: float | None = None


class JobsEnded(Payload, frozen=True, tag="jobs_ended", kw_only=True):
    """A lot reported how jobs ended; the leaf events of these jobs follow in the same commit.

    `returned`: jobs that are to be offered again. The lot gave them back before they began, or it was cancelled with
    the run before a branch continued the run.
    `stopped`: jobs that were stopped before, and of which nothing runs any more.
    """

    lot: RunId
    message: int
    returned: tuple[LeafId, ...] = ()
    stopped: tuple[LeafId, ...] = ()


# A person; a watch, which counts such resets; or a watch for jobs that were lost with a machine, which do not count.
ResetBy: TypeAlias = Literal["person", "watch", "loss"]


class JobsReset(Payload, frozen=True, tag="jobs_reset", kw_only=True):
    """Jobs that failed or were stopped may run again. `limits`: the new limits of some of them.

    `recovery`: who decided it.
    """

    leaves: tuple[LeafId, ...]
    limits: dict[LeafId, JobLimits] = {}
    message: int | None = None
    by: str | None = None
    recovery: ResetBy = "person"


class JobsStopped(Payload, frozen=True, tag="jobs_stopped", kw_only=True):
    """Jobs that are not to run. `disabled`: what needs them runs without them.

    `cause`: user, dependency, or in the log of a lot also returned: its run offers them again.
    """

    leaves: tuple[LeafId, ...]
    disabled: bool = False
    cause: str = "user"
    reason: str | None = None
    message: int | None = None
    by: str | None = None


class ClusterChanged(Payload, frozen=True, tag="cluster_changed", kw_only=True):
    """Schedulers, actions or allocations of a batch run changed. `number` counts these events."""

    number: int
    changes: tuple[ClusterChange, ...]
    message: int | None = None
    by: str | None = None


class PublishedItem(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One value that a step published."""

    step: LeafId
    value: msgspec.Raw
    channel: str = "default"
    attempt: int = 1


class Published(Payload, frozen=True, tag="published", kw_only=True):
    """Values of steps, in the order of their calls. `claim`: which claim of the run executed these steps.

    `dropped`: values that came faster than they could be written. `full`: the run keeps no later values.
    """

    items: tuple[PublishedItem, ...]
    claim: int = 1
    dropped: int = 0
    full: bool = False


class Moved(Payload, frozen=True, tag="moved"):
    """The run was copied to another store and lives there. `to`: that store's name. Nothing follows this event."""

    to: str
    by: str | None = None


# Leaf events: seen or hidden by lineage.


class StepStarted(Payload, frozen=True, tag="step_started"):
    leaf: LeafId
    name: str
    attempt: int = 1
    args: msgspec.Raw = NULL
    key: str = ""
    queue: str | None = None
    compensate: str | None = None
    # Its work is done by leaves of its own (modules, a question): by itself it executes nothing.
    group: bool = False


class StepCompleted(Payload, frozen=True, tag="step_completed"):
    leaf: LeafId
    result: msgspec.Raw = NULL
    attempt: int = 1
    message: int | None = None


class StepFailed(Payload, frozen=True, tag="step_failed", kw_only=True):
    leaf: LeafId
    error: ErrorInfo
    attempt: int = 1
    message: int | None = None


class JobOffered(Payload, frozen=True, tag="job_offered"):
    """A job may be run by any runner that claims its lot. The lot's own log shows when it starts."""

    leaf: LeafId
    name: str
    lot: int
    attempt: int = 1


class JobHeld(Payload, frozen=True, tag="job_held", kw_only=True):
    """A job failed finally. It stays open: a reset lets it run again, and what needs it waits."""

    leaf: LeafId
    error: ErrorInfo
    attempt: int = 1


class RetryScheduled(Payload, frozen=True, tag="retry_scheduled", kw_only=True):
    """Attempt `attempt` failed; the next one starts at `due_at`."""

    leaf: LeafId
    attempt: int
    due_at: float
    error: ErrorInfo


class ModuleStarted(Payload, frozen=True, tag="module_started", kw_only=True):
    leaf: LeafId
    step: str
    module: str
    attempt: int = 1
    args: msgspec.Raw = NULL
    key: str = ""
    group: bool = False


class ModuleCompleted(Payload, frozen=True, tag="module_completed"):
    leaf: LeafId
    result: msgspec.Raw = NULL
    attempt: int = 1


class ModuleFailed(Payload, frozen=True, tag="module_failed", kw_only=True):
    leaf: LeafId
    error: ErrorInfo
    attempt: int = 1


class InteractionRequested(Payload, frozen=True, tag="interaction_requested", kw_only=True):
    leaf: LeafId
    question_id: str
    question: Question


class InteractionResponse(Payload, frozen=True, tag="interaction_response", kw_only=True):
    leaf: LeafId
    question_id: str
    answer: msgspec.Raw
    message: int | None = None
    by: str | None = None


class SignalWaited(Payload, frozen=True, tag="signal_waited", kw_only=True):
    leaf: LeafId
    name: str
    due_at: float | None = None


class SignalReceived(Payload, frozen=True, tag="signal_received", kw_only=True):
    """`message` is None when the wait ran into its time-out."""

    leaf: LeafId
    message: int | None = None
    payload: msgspec.Raw = NULL


class TimerStarted(Payload, frozen=True, tag="timer_started", kw_only=True):
    leaf: LeafId
    due_at: float


class TimerFired(Payload, frozen=True, tag="timer_fired", kw_only=True):
    leaf: LeafId


class LeafCancelled(Payload, frozen=True, tag="leaf_cancelled", kw_only=True):
    """Workflow code gave this leaf up (a time-out, a cancelled task...). Its late result is ignored."""

    leaf: LeafId


class ChildStarted(Payload, frozen=True, tag="child_started", kw_only=True):
    leaf: LeafId
    child: RunId
    workflow: str
    input: msgspec.Raw
    detach: bool = False
    version: str = ""
    policy: str = "resume"
    queue: str = "default"


class ChildFinished(Payload, frozen=True, tag="child_finished", kw_only=True):
    leaf: LeafId
    child: RunId
    status: str
    result: msgspec.Raw = NULL
    error: ErrorInfo | None = None
    message: int | None = None


class CompensationStarted(Payload, frozen=True, tag="compensation_started", kw_only=True):
    leaf: LeafId
    key: str = ""
    attempt: int = 1


class CompensationRetryScheduled(Payload, frozen=True, tag="compensation_retry_scheduled", kw_only=True):
    """Attempt `attempt` to undo the leaf failed; the next one starts at `due_at`."""

    leaf: LeafId
    attempt: int
    due_at: float
    error: ErrorInfo


class CompensationCompleted(Payload, frozen=True, tag="compensation_completed", kw_only=True):
    leaf: LeafId


class CompensationFailed(Payload, frozen=True, tag="compensation_failed", kw_only=True):
    leaf: LeafId
    error: ErrorInfo


# Ends. They belong to their branch: a new branch can continue after them.


class WorkflowCompleted(Payload, frozen=True, tag="workflow_completed", kw_only=True):
    """`continued_as`: this run handed over to a successor, whose input is `next_input`."""

    result: msgspec.Raw = NULL
    continued_as: RunId | None = None
    next_input: msgspec.Raw = NULL


class WorkflowFailed(Payload, frozen=True, tag="workflow_failed", kw_only=True):
    """`cause_leaf`, `cause_child`: the step or child run whose failure it is; neither: the code failed by itself."""

    error: ErrorInfo
    cause_leaf: LeafId | None = None
    cause_child: RunId | None = None


class WorkflowCancelled(Payload, frozen=True, tag="workflow_cancelled", kw_only=True):
    reason: str | None = None


RunLevel: TypeAlias = (
    WorkflowCreated
    | Claimed
    | Paused
    | Resumed
    | Interrupted
    | CancelRequested
    | JumpRequested
    | BranchCreated
    | WorkflowRecovered
    | VersionBound
    | MessageRefused
    | JobsEnded
    | JobsReset
    | JobsStopped
    | ClusterChanged
    | Published
    | Moved
)
LeafEvent: TypeAlias = (
    StepStarted
    | StepCompleted
    | StepFailed
    | JobOffered
    | JobHeld
    | RetryScheduled
    | ModuleStarted
    | ModuleCompleted
    | ModuleFailed
    | InteractionRequested
    | InteractionResponse
    | SignalWaited
    | SignalReceived
    | TimerStarted
    | TimerFired
    | LeafCancelled
    | ChildStarted
    | ChildFinished
    | CompensationStarted
    | CompensationRetryScheduled
    | CompensationCompleted
    | CompensationFailed
)
Ending: TypeAlias = WorkflowCompleted | WorkflowFailed | WorkflowCancelled
Body: TypeAlias = RunLevel | LeafEvent | Ending

RUN_LEVEL: tuple[type[Payload], ...] = RunLevel.__args__
ENDINGS: tuple[type[Payload], ...] = Ending.__args__
BODIES: tuple[type[Payload], ...] = Body.__args__

# The current version of each payload that ever changed, as it is stored; all others are at 1.
VERSIONS: dict[type[Payload], int] = {Paused: 2, WorkflowFailed: 2}


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One numbered fact of a run. `nonce` is on the first event of each commit and tells whose commit it was.

    `v` is the version of the stored payload. It belongs to the stored form: in memory every payload is of today's
    version, and `v` is 1.
    """

    seq: int
    at: float
    body: Body
    branch: BranchId = BranchId(0)
    v: int = 1
    nonce: str | None = None

    @property
    def type(self) -> str:
        return event_name(type(self.body))


def event_name(payload: type[Payload]) -> str:
    """The stable name under which a payload is stored."""
    tag = payload.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def is_run_level(body: Body) -> bool:
    """Whether no branch can hide this event."""
    return isinstance(body, RUN_LEVEL)


def leaf_of(body: Body) -> LeafId | None:
    """The leaf that an event is about, or None for run-level events and ends."""
    return getattr(body, "leaf", None)
