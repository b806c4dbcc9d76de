"""Allocations of a batch run, with the schedulers and actions that they come from: the fold of its cluster changes.

Invariants: changes have numbers, and of two with one number only the first counts. An allocation that ended stays
ended. A change that names something unknown changes nothing: a reader never fails on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from buoy.core.batch.resources import fits_shape, group_resources
from buoy.core.batch.sizing import rounds_left
from buoy.core.batch.slurm_text import Cause, Phase, SlurmJob
from buoy.core.log import cluster_changes as c
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.spec.model import Resources, SpecAction
from buoy.errors import BadInput


class AllocationStatus(StrEnum):
    """Where an allocation stands. Pending without a job id: it is planned, and perhaps submitted."""

    PENDING = "pending"
    ACTIVE = "active"
    COMPLETE = "complete"


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """One request for nodes. Its identity is cluster, job id, name and restart count: ids alone are used again."""

    name: str
    scheduler: str
    status: AllocationStatus = AllocationStatus.PENDING
    job_id: str | None = None
    cluster: str = ""
    restart: int = 0
    cause: str | None = None
    state: str | None = None
    elapsed_s: float | None = None
    peak_memory_bytes: int | None = None

    @property
    def live(self) -> bool:
        return self.status is not AllocationStatus.COMPLETE


class ClusterAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action, and when and by whom it was executed.

    `given`: its entry in the spec. Those that a plan made have a scheduler instead. `ended_at`: its commands are over.
    """

    action: str
    trigger: c.Trigger
    kind: c.ActionKind
    scheduler: str = ""
    is_recovery: bool = False
    executed: bool = False
    executed_at: float | None = None
    executed_by: str | None = None
    given: SpecAction | None = None
    ended_at: float | None = None
    end: c.ActionEnded | None = None

    @property
    def unfinished(self) -> bool:
        """Whether commands were claimed, and their end was not recorded: they run now, or were cut short."""
        return self.kind == "run_commands" and self.executed and self.ended_at is None


class ClusterEntry(msgspec.Struct, frozen=True):
    """Changes that were recorded together: consumed by the run, or still in its inbox."""

    number: int
    at: float
    by: str | None
    changes: tuple[c.ClusterChange, ...]


class ClusterState:
    """What a run has at its cluster."""

    def __init__(self, entries: Iterable[ClusterEntry], given: Iterable[SpecAction] = ()) -> None:
        self.schedulers: dict[str, c.SchedulerAdded] = {}
        self.actions: dict[str, ClusterAction] = {
            name: ClusterAction(action=name, trigger=each.trigger, kind=each.kind, given=each)
            for number, each in enumerate(given, 1)
            if (name := f"spec-{number}")
        }
        # Claims of commands whose end is not recorded, by action, for readers that do not have the spec.
        self.begun: dict[str, ClusterEntry] = {}
        self.allocations: dict[str, Allocation] = {}
        # The number of the change that planned an allocation, or that took its intent over, by name.
        self.planned: dict[str, int] = {}
        self.asked = c.AllocationsAsked()
        # The rest of the time of running allocations, by name, as far as the scheduler was asked for it.
        self.left_s: dict[str, float] = {}
        # How many looks in a row found allocations that failed before a runner started in them.
        self.false_starts = 0
        self.number = 0
        seen: set[int] = set()
        for entry in entries:
            if entry.number not in seen:
                seen.add(entry.number)
                self.number = max(self.number, entry.number)
                self._count_false_starts(entry)
                for change in entry.changes:
                    self._apply(change, entry)

    @property
    def live(self) -> list[Allocation]:
        """The allocations that have not ended."""
        return [each for each in self.allocations.values() if each.live]

    @property
    def intents(self) -> list[Allocation]:
        """The allocations that are planned, and that no process has recorded as submitted."""
        return [each for each in self.live if each.job_id is None]

    def serves(self, allocation: Allocation, needed: Resources) -> int:
        """How many jobs with these resources a live allocation can run in its time, or in what is left of it."""
        scheduler = self.schedulers.get(allocation.scheduler)
        if scheduler is None or not fits_shape(needed, group_resources(scheduler.group)):
            return 0
        if needed.time_s is not None and needed.time_s > scheduler.walltime_s:
            return 0
        left_s = self.left_s.get(allocation.name)
        return scheduler.places * (scheduler.rounds if left_s is None else rounds_left(scheduler, needed, left_s))

    def serving(self, needed: Resources) -> int:
        """How many live allocations can run such a job."""
        return sum(self.serves(each, needed) > 0 for each in self.live)

    def note_left(self, jobs: Mapping[str, Sequence[SlurmJob]]) -> None:
        """What the scheduler says about the time of running allocations. Those that wait have all of theirs."""
        active = {name: each for name, found in jobs.items() for each in found if each.phase is Phase.ACTIVE}
        self.left_s = {name: each.left_s for name, each in active.items() if each.left_s is not None}

    def after(self, changes: Iterable[c.ClusterChange]) -> ClusterState:
        """The state with these changes, which are not recorded yet."""
        made = ClusterState(())
        made.number, made.schedulers = self.number, dict(self.schedulers)
        made.actions, made.allocations = dict(self.actions), dict(self.allocations)
        made.left_s, made.asked, made.planned = self.left_s, self.asked, dict(self.planned)
        for change in changes:
            made._apply(change, ClusterEntry(self.number + 1, 0.0, None, ()))
        return made

    def _apply(self, change: c.ClusterChange, entry: ClusterEntry) -> None:
        match change:
            case c.SchedulerAdded():
                self.schedulers[change.name] = change
            case c.AllocationsAsked():
                self.asked = change
            case c.ActionAdded():
                self.actions[change.action] = _added(change)
            case c.ActionExecuted():
                self._executed(change, entry)
            case c.ActionEnded():
                self.begun.pop(change.action, None)
                if change.action in self.actions:
                    ended = msgspec.structs.replace(self.actions[change.action], ended_at=entry.at, end=change)
                    self.actions[change.action] = ended
            case c.ActionsReset():
                self.begun.clear()
                kept = [each for each in self.actions.values() if not each.is_recovery]
                blank = dict.fromkeys(("executed_at", "executed_by", "ended_at", "end"))
                self.actions = {
                    each.action: msgspec.structs.replace(each, executed=False, **blank) for each in kept
                }  # fmt: skip
            case c.AllocationPlanned():
                self.allocations.setdefault(change.name, Allocation(name=change.name, scheduler=change.scheduler))
                self.planned[change.name] = entry.number
            case c.AllocationSubmitted():
                self._change(change.name, job_id=change.job_id, cluster=change.cluster)
            case c.AllocationActive():
                self._change(change.name, status=AllocationStatus.ACTIVE, restart=change.restart)
            case c.AllocationRequeued():
                self._change(change.name, status=AllocationStatus.PENDING, restart=change.restart)
            case c.AllocationEnded():
                self._change(
                    change.name,
                    status=AllocationStatus.COMPLETE,
                    cause=change.cause,
                    state=change.state or None,
                    elapsed_s=change.elapsed_s,
                    peak_memory_bytes=change.peak_memory_bytes,
                )

    def _count_false_starts(self, entry: ClusterEntry) -> None:
        """One look is one entry. An allocation that ran, or ended well before a look saw it, shows that they start."""
        started = {each.name for each in entry.changes if isinstance(each, c.AllocationActive)}
        failed = well = False
        for change in (each for each in entry.changes if isinstance(each, c.AllocationEnded)):
            known = self.allocations.get(change.name)
            if known is None or not known.live:
                continue
            began = known.status is AllocationStatus.ACTIVE or known.name in started
            well = well or began or change.cause == Cause.COMPLETED
            failed = failed or (not began and change.cause in (Cause.APPLICATION, Cause.OOM))
        if failed:
            self.false_starts += 1
        elif well:
            self.false_starts = 0

    def _executed(self, change: c.ActionExecuted, entry: ClusterEntry) -> None:
        action = self.actions.get(change.action)
        if change.begins:
            self.begun[change.action] = entry
        if action is not None and not action.executed:
            self.actions[change.action] = msgspec.structs.replace(
                action, executed=True, executed_at=entry.at, executed_by=entry.by
            )

    def _change(self, name: str, **fields: object) -> None:
        known = self.allocations.get(name)
        if known is not None and known.live:
            self.allocations[name] = msgspec.structs.replace(known, **fields)


def _added(change: c.ActionAdded) -> ClusterAction:
    return ClusterAction(
        action=change.action,
        trigger=change.trigger,
        kind=change.kind,
        scheduler=change.scheduler,
        is_recovery=change.is_recovery,
    )


def recorded(log: Iterable[e.Event]) -> list[ClusterEntry]:
    """The changes that a run's log has."""
    return [
        ClusterEntry(event.body.number, event.at, event.body.by, event.body.changes)
        for event in log
        if isinstance(event.body, e.ClusterChanged)
    ]


def read_message(body: msgspec.Raw) -> c.ChangeCluster:
    """The changes in a message."""
    found: c.ChangeCluster = codec.decode(body, c.ChangeCluster, "a message about a cluster")
    return found


def live_count(document: Document, bodies: Iterable[msgspec.Raw]) -> int:
    """How many allocations of a run are at its cluster, by its document and messages about its cluster.

    A message that the document already counts, or that cannot be read, changes nothing: a list hides no other run.
    """
    count, number, named = document.allocations, document.cluster_number, set[str]()
    for body in bodies:
        try:
            found = read_message(body)
        except BadInput:
            continue
        if found.number <= number:
            continue
        number = found.number
        for change in found.changes:
            if isinstance(change, c.AllocationSubmitted):
                named.add(change.name)
            elif isinstance(change, c.AllocationEnded) and change.cause != c.REFUSED:
                count -= change.name not in named
                named.discard(change.name)
    return max(count, 0) + len(named)


def cluster_event(body: msgspec.Raw, message: int, by: str | None) -> e.ClusterChanged:
    """The event that consumes a message about a cluster."""
    found = read_message(body)
    return e.ClusterChanged(number=found.number, changes=found.changes, message=message, by=by)
