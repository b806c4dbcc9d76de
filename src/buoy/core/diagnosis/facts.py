"""Facts: everything known about one run now. `recovery.evidence` gathers them, `health` and `diagnose` judge them.

Invariants: facts are what was read, never conclusions. A value that could not be read is None, or is named in
`unreadable`. All times of a run's facts are the run's: `recovery.evidence` translates those of the store (see `times`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from buoy.core.batch.orphans import ClusterOrphan
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import Status
from buoy.core.log.lineage import visible

T = TypeVar("T")
TaskState: TypeAlias = Literal["due", "held", "parked", "missing", "ended"]
# "unneeded": runs of that workflow are driven by code, not by a stored definition.
Presence: TypeAlias = Literal["present", "absent", "unneeded", "unknown"]


class LoopFacts(msgspec.Struct, frozen=True):
    """An event loop that does not turn: for how long, which step of which run holds it, and where in the code.

    Without a leaf it is the workflow code of the run; without a run, code outside of any.
    """

    held_s: float
    run_id: str = ""
    leaf: str = ""
    where: str = ""


class RunnerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A runner as it stands now. `proof` is the evidence that its process has ended, if there is any."""

    id: str
    host: str = ""
    pid: int = 0
    role: str = "worker"
    registered: bool = True
    # None: by the clock of a machine that cannot be compared with ours.
    beat_age_s: float | None = None
    # How many beats it has written, and when the last one, by the clock of its own machine.
    beats: int = 0
    beat_at: float | None = None
    # An observer on another machine has noted that its last heartbeat did not change.
    suspected: bool = False
    # Its process is seen to be stopped by a signal.
    stopped: bool = False
    # Its own word, with its last beat.
    loop: LoopFacts | None = None
    # The same: runs whose code waits, with nothing open that could wake it.
    stuck: tuple[str, ...] = ()
    gone_why: str | None = None
    proof: dict[str, str | int | float | bool | None] | None = None
    # Why nothing shows whether it lives: its lock cannot be looked at from here, or its record cannot be read.
    doubt: str | None = None
    unreadable: str | None = None
    # The job of a batch scheduler that it is in. Then only that scheduler proves its end, not silence.
    allocation: str | None = None
    queues: tuple[str, ...] = ("default",)
    workflows: dict[str, tuple[str, ...]] = {}
    unable: tuple[str, ...] = ()
    # Runs that it drives whenever no other runner does, whatever its role.
    tends: tuple[str, ...] = ()
    stack: str | None = None
    env: str | None = None
    holding: int = 0
    errors: int = 0
    last_error: str | None = None
    # Of its last error, by its own clock.
    error_age_s: float = 0.0

    @property
    def gone(self) -> bool:
        """Whether it certainly works no more."""
        return self.proof is not None or self.gone_why is not None or not self.registered

    @property
    def out_of_sight(self) -> bool:
        """Whether its process is on another machine, so that only two looks apart can tell that it has ended."""
        return not self.gone and self.beat_age_s is None and bool(self.pid)


class ProgressFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a step has come, in its own words."""

    at: float
    done: float | None = None
    total: float | None = None
    note: str = ""
    leaf: str = ""


class FailedLeaf(msgspec.Struct, frozen=True):
    """The leaf that failed last, of those that the current branch sees."""

    leaf: LeafId
    attempts: int
    at: float
    error: e.ErrorInfo | None = None


class Milestones(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the document has no room for, out of the log."""

    claimed: e.Claimed | None = None
    claimed_at: float | None = None
    interrupted: e.Interrupted | None = None
    interrupted_at: float | None = None
    cancel: e.CancelRequested | None = None
    recovered: e.WorkflowRecovered | None = None
    recovered_at: float | None = None
    failed: FailedLeaf | None = None
    # The child that failed last, and what compensations came to, on the current branch.
    child: e.ChildFinished | None = None
    # How the run failed, on the current branch. Then `failed` and `child` are what ended it, if they did.
    end: e.WorkflowFailed | None = None
    undone: tuple[LeafId, ...] = ()
    not_undone: dict[LeafId, e.ErrorInfo] = {}
    takeovers: int = 0


class TaskFacts(msgspec.Struct, frozen=True):
    """The task that drives a run. `missing`: there is none; `ended`: the one that is named is over."""

    id: str = ""
    generation: int = 1
    state: TaskState = "parked"


class MessageFacts(msgspec.Struct, frozen=True):
    """A message that the log has not consumed. `about`: the signal's name, the question's id or the child's id."""

    number: int
    kind: str
    about: str = ""
    sent_at: float = 0.0
    by: str | None = None


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A store that took no data when that was tried; `cause` as in `maintenance.Refusal`."""

    cause: str
    place: str
    detail: str
    free_bytes: int | None = None


class UnfinishedAction(msgspec.Struct, frozen=True):
    """Commands of an action that were claimed, and whose end is not recorded."""

    action: str
    by: str | None
    at: float


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch run has at its cluster. `unasked`: why the scheduler gave no answer."""

    orphans: tuple[ClusterOrphan, ...] = ()
    unfinished: tuple[UnfinishedAction, ...] = ()
    unasked: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One run, who holds it, and who else is there."""

    document: Document
    # By the clock of the run's last writer, as `due_at` and the times of messages.
    now: float
    # Who holds the run's task; a holder that the store does not know has `registered` False.
    holder: RunnerFacts | None = None
    # Without a holder: from when on a runner may take it. None: parked until a message comes.
    due_at: float | None = None
    # Every runner that is not known to be gone.
    runners: tuple[RunnerFacts, ...] = ()
    unread: int = 0
    progress: ProgressFacts | None = None
    milestones: Milestones = Milestones()
    drift: str | None = None
    unreadable: str | None = None
    # The document as the store has it; `document` above is the one of the log, where that was read.
    stored: Document | None = None
    # The whole log, if it was read.
    log: tuple[e.Event, ...] | None = None
    task: TaskFacts | None = None
    # The status of each child that an open leaf waits for; "absent": there is no such run; "ending": it has ended, and
    # still has a task to tell so.
    children: dict[RunId, str] = {}
    # What is wrong with those children, if anything is: one line each.
    child_troubles: dict[RunId, str] = {}
    # Whether the definition of the run's version is stored, and that of its first version.
    definition: Presence = "unknown"
    initial_definition: Presence = "unknown"
    # The steps of the spec, each with those that it needs; None: not a spec, or unreadable.
    needs: dict[str, tuple[str, ...]] | None = None
    # The modules whose functions the spec calls.
    calls: tuple[str, ...] = ()
    messages: tuple[MessageFacts, ...] = ()
    # True if a client watches the run live; None: not known.
    stream_open: bool | None = None
    # Written by another system: its document has not the form of ours.
    foreign: bool = False
    # After how long without progress a run may hang.
    stale_after_s: float | None = None
    # Set if the store took no data just now. None: it did, or that was not tried.
    store: StoreFacts | None = None
    # Of a batch run: its allocations at Slurm that have not ended, by its log and its inbox. A list counts them only of
    # runs that no live runner could take.
    allocations: int = 0
    # Of a batch run: all that it has not read is what became of its allocations. A paused run need not read it.
    notes_only: bool = False
    # Of a batch run with allocations, if its cluster was looked at.
    cluster: ClusterFacts | None = None

    @property
    def rests(self) -> bool:
        """Whether it is paused, and nothing has come for it that a runner must read."""
        return self.document.status is Status.PAUSED and (self.due_at is None or self.notes_only)

    @property
    def steps(self) -> tuple[str, ...] | None:
        """The ids of all steps of the spec."""
        return None if self.needs is None else tuple(self.needs)

    @property
    def live_owner(self) -> bool:
        """True if a runner holds it and nothing proves that runner gone."""
        return self.holder is not None and not self.holder.gone


def milestones_of(events: Sequence[e.Event]) -> Milestones:
    """The parts of a log that tell a person how the run came to where it is."""
    found = Milestones()
    for event in events:
        match event.body:
            case e.Claimed() as body:
                takeovers = found.takeovers + (body.cause == "taken_over")
                found = replace(found, claimed=body, claimed_at=event.at, takeovers=takeovers)
            case e.Interrupted() as body:
                found = replace(found, interrupted=body, interrupted_at=event.at)
            case e.CancelRequested() as body:
                found = replace(found, cancel=body)
            case e.WorkflowRecovered() as body:
                found = replace(found, recovered=body, recovered_at=event.at)
            case _:
                continue
    return _of_the_branch(found, visible(events))


def _of_the_branch(found: Milestones, seen: Sequence[e.Event]) -> Milestones:
    """What failed and what was undone, where a later branch does not hide it."""
    undone: dict[LeafId, e.ErrorInfo | None] = {}
    failed: dict[LeafId, FailedLeaf] = {}
    children: dict[LeafId, e.ChildFinished] = {}
    end: e.WorkflowFailed | None = None
    for event in seen:
        match event.body:
            case e.StepFailed() | e.ModuleFailed() as body:
                failed.pop(body.leaf, None)
                failed[body.leaf] = FailedLeaf(body.leaf, body.attempt, event.at, body.error)
            case e.ChildFinished() as body if body.status != "completed":
                children[body.leaf] = body
            case e.WorkflowFailed() as body:
                end = body
            case e.CompensationCompleted(leaf=leaf):
                undone[leaf] = None
            case e.CompensationFailed(leaf=leaf, error=error):
                undone[leaf] = error
            case _:
                continue
    child = next((each for each in children.values() if is_cause(end, each.leaf, each.child)), None)
    return replace(
        found,
        failed=failed.get(end.cause_leaf) if end is not None and end.cause_leaf in failed else _last(failed),
        child=child or _last(children),
        end=end,
        undone=tuple(leaf for leaf, error in undone.items() if error is None),
        not_undone={leaf: error for leaf, error in undone.items() if error is not None},
    )


def is_cause(end: e.WorkflowFailed | None, leaf: LeafId, child: RunId | None = None) -> bool:
    """Whether the failure of that leaf, or of that child, ended the run."""
    return end is not None and (end.cause_leaf == leaf or (child is not None and end.cause_child == child))


def _last(found: dict[LeafId, T]) -> T | None:
    return found[next(reversed(found))] if found else None


def task_ended(events: Sequence[e.Event]) -> bool:
    """True if the run's last task ended with it: the run had ended, was rewound, and no process has driven it since.

    Stores keep no ended tasks, so that only the log can tell one from a task that was lost.
    """
    for event in reversed(events):
        if isinstance(event.body, e.ENDINGS):
            return True
        if isinstance(event.body, e.Claimed) and event.body.cause not in ("requested", "recovered"):
            return False
    return False
