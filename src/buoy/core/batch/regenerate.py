"""Regenerate: the schedulers, actions and allocations that pending jobs need. Pure.

Invariants: groups are made by resources and by whether a job waits for another. What live allocations serve counts, so
a second plan on the result of the first is empty. A group whose jobs wait gets no allocation now, but an action.
The action asks for some when any of its jobs is ready and no allocation is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from buoy.core.batch.allocations import Allocation, AllocationStatus, ClusterState
from buoy.core.batch.graph import GraphJob, GroupKey, SchedulerGroup, WorkflowGraph
from buoy.core.batch.jobs import JobStatus, JobView
from buoy.core.batch.resources import envelope, group_name
from buoy.core.batch.sizing import Wishes, allocations_needed, partition_for, scheduler_for
from buoy.core.batch.slurm_text import Partition
from buoy.core.log import cluster_changes as c
from buoy.core.spec.model import Resources

# Jobs that need an allocation, now or later. Those of a lot that no runner holds any more are among them.
PENDING = frozenset(
    {JobStatus.UNINITIALIZED, JobStatus.BLOCKED, JobStatus.READY, JobStatus.PENDING, JobStatus.TERMINATED}
)
# Jobs for which others need not wait any more.
_OVER = frozenset({JobStatus.COMPLETED, JobStatus.DISABLED})


class PlannedGroup(msgspec.Struct, frozen=True):
    """What one group of jobs gets. `served`: jobs for which live allocations suffice.

    `trigger`: when an action of the spec asks for them; None: the plan itself does.
    """

    scheduler: str
    group: str
    deferred: bool
    jobs: int
    served: int
    allocations: int
    walltime_s: float
    trigger: c.Trigger | None = None


class Regenerated(msgspec.Struct, frozen=True):
    """A plan: what each group gets, and the changes that record it."""

    pending: int
    groups: tuple[PlannedGroup, ...]
    changes: tuple[c.ClusterChange, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The allocations that are new in it."""
        return tuple(each.name for each in self.changes if isinstance(each, c.AllocationPlanned))


class PendingJob(msgspec.Struct, frozen=True):
    """A job as its run has it now."""

    view: JobView
    resources: Resources
    needs: tuple[str, ...]

    @property
    def pending(self) -> bool:
        return self.view.status in PENDING or self.view.lost


def pending_groups(jobs: Sequence[PendingJob], covered: Collection[str] = ()) -> list[SchedulerGroup]:
    """The pending jobs by what they need and whether they wait for others. `covered`: those that are left out."""
    over = {job.view.job for job in jobs if job.view.status in _OVER}
    waits = {JobStatus.UNINITIALIZED, JobStatus.BLOCKED}
    graph = WorkflowGraph.from_jobs(
        GraphJob(
            job.view.job,
            tuple(each for each in job.needs if each not in over) if job.view.status in waits else (),
            job.resources,
        )
        for job in jobs
    )
    return graph.scheduler_groups(job.view.job for job in jobs if job.pending and job.view.job not in covered)


def regenerate(
    jobs: Sequence[PendingJob],
    cluster: ClusterState,
    partitions: Sequence[Partition],
    wishes: Wishes,
    new_name: Callable[[int], str],
    *,
    recovery: bool,
    covered: Collection[str] = (),
) -> Regenerated:
    """The plan for all pending jobs. `recovery` False: the first plan of a run, with actions that stay.

    `covered`: jobs for which an action of the spec asks by itself; only the first plan leaves them to it.
    """
    groups = pending_groups(jobs, covered)
    pending = sum(len(group.jobs) for group in groups)
    shapes: dict[GroupKey, tuple[str, ...]] = {}
    if wishes.by_partition:
        groups, shapes = by_partition(groups, wishes, partitions)
    if not groups:
        return Regenerated(0, (), ())
    changes: list[c.ClusterChange] = [
        c.ActionExecuted(action.action)
        for action in cluster.actions.values()
        if recovery and action.kind == "schedule_nodes" and not action.executed
    ]
    planned, served_before = [], 0
    for group in groups:
        made = _Group(group, cluster, partitions, wishes, recovery=recovery)
        made.made_for(shapes.get(group.key, ()))
        served_before = made.plan(changes, new_name, served_before)
        planned.append(made.planned)
    plans = any(isinstance(each, c.AllocationPlanned) for each in changes)
    if not plans and _same_actions(changes, cluster):
        changes = []
    return Regenerated(pending, tuple(planned), tuple(changes))


def by_partition(
    groups: Sequence[SchedulerGroup], wishes: Wishes, partitions: Sequence[Partition]
) -> tuple[list[SchedulerGroup], dict[GroupKey, tuple[str, ...]]]:
    """Joins groups that run in the same partition: a group with the largest of each resource, and what it joins."""
    found: dict[tuple[str, bool], list[SchedulerGroup]] = {}
    for group in groups:
        resources, deferred = group.key
        found.setdefault((partition_for(resources, wishes, partitions).name, deferred), []).append(group)
    made, shapes = [], {}
    for (_, deferred), members in found.items():
        key = GroupKey(envelope([each.key.resources for each in members]), deferred)
        made.append(SchedulerGroup(key, tuple(job for each in members for job in each.jobs)))
        if len(members) > 1:
            shapes[key] = tuple(group_name(each.key.resources) for each in members)
    return made, shapes


class _Group:
    """The plan of one group."""

    def __init__(
        self,
        group: SchedulerGroup,
        cluster: ClusterState,
        partitions: Sequence[Partition],
        wishes: Wishes,
        *,
        recovery: bool,
    ) -> None:
        self._group = group
        self._cluster = cluster
        self._wishes = wishes
        self._recovery = recovery
        resources, deferred = group.key
        name = scheduler_name(resources, deferred=deferred)
        self._scheduler = scheduler_for(
            name, resources, len(group.jobs), deferred=deferred, wishes=wishes, partitions=partitions
        )

    def made_for(self, shapes: tuple[str, ...]) -> None:
        """The groups that this one joins."""
        self._scheduler = msgspec.structs.replace(self._scheduler, shapes=shapes)

    def plan(self, changes: list[c.ClusterChange], new_name: Callable[[int], str], used: int) -> int:
        """Adds what this group needs. `used`: jobs of other groups that the same allocations serve; its new value."""
        resources, deferred = self._group.key
        jobs = len(self._group.jobs)
        capacity = sum(self._cluster.serves(each, resources) for each in self._cluster.live)
        served = max(0, min(jobs, capacity - used))
        allowed = self._wishes.allocations_max - self._cluster.serving(resources)
        count = 0 if deferred else allocations_needed(self._scheduler, jobs, served, allowed)
        if self._cluster.schedulers.get(self._scheduler.name) != self._scheduler:
            changes.append(self._scheduler)
        number = len(self._cluster.allocations) + sum(isinstance(each, c.AllocationPlanned) for each in changes)
        changes += self._action(count)
        changes += [
            c.AllocationPlanned(new_name(number + each + 1), self._scheduler.name) for each in range(count)
        ]  # fmt: skip
        self.planned = PlannedGroup(
            self._scheduler.name, self._scheduler.group, deferred, jobs, served, count, self._scheduler.walltime_s
        )
        return used + (0 if deferred else served)

    def _action(self, count: int) -> Iterable[c.ClusterChange]:
        """Groups without dependencies have their action executed at once; only deferred ones get recovery actions."""
        deferred = self._group.key.has_dependencies
        if not deferred and (self._recovery or not count):
            return
        name = f"{self._scheduler.name}.{len(self._cluster.actions) + 1}"
        yield c.ActionAdded(
            action=name,
            trigger="on_jobs_ready" if deferred else "on_workflow_start",
            scheduler=self._scheduler.name,
            is_recovery=self._recovery,
        )
        if not deferred:
            yield c.ActionExecuted(name)


def _same_actions(changes: Sequence[c.ClusterChange], cluster: ClusterState) -> bool:
    """Whether a plan would only replace waiting actions by the same ones."""
    wanted = sorted(each.scheduler for each in changes if isinstance(each, c.ActionAdded))
    waiting = sorted(
        each.scheduler for each in cluster.actions.values() if each.kind == "schedule_nodes" and not each.executed
    )
    new = any(isinstance(each, c.SchedulerAdded) for each in changes)
    return wanted == waiting and not new


def wanted_intents(jobs: Sequence[PendingJob], cluster: ClusterState) -> list[Allocation]:
    """The allocations that are planned and not at Slurm, and that a pending job could run in."""
    shapes = {job.resources for job in jobs if job.pending} if cluster.intents else set()
    return [each for each in cluster.intents if any(cluster.serves(each, shape) for shape in shapes)]


def surplus(jobs: Sequence[PendingJob], cluster: ClusterState) -> list[Allocation]:
    """The allocations that wait at Slurm although no pending job is left that could run in them."""
    shapes = {job.resources for job in jobs if job.pending}
    waiting = [each for each in cluster.live if each.status is AllocationStatus.PENDING and each.job_id is not None]
    return [each for each in waiting if not any(cluster.serves(each, shape) for shape in shapes)]


def scheduler_name(resources: Resources, *, deferred: bool) -> str:
    """The name of the scheduler of a group."""
    return group_name(resources) + ("_deferred" if deferred else "")
