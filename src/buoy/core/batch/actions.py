"""Actions of a batch run: which of them fire now, and what those that schedule nodes ask for. Pure.

Invariants: an action fires once, until actions are reset. One that schedules nodes is claimed together with its
allocations. `on_jobs_ready` holds when any of its jobs is ready: one that waited for all of them could wait forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from buoy.core.batch.allocations import ClusterAction, ClusterState
from buoy.core.batch.jobs import SETTLED, JobStatus
from buoy.core.batch.regenerate import PendingJob, PlannedGroup, scheduler_name
from buoy.core.batch.resources import group_name
from buoy.core.batch.sizing import Wishes, allocations_needed, scheduler_for
from buoy.core.batch.slurm_text import Partition
from buoy.core.log import cluster_changes as c
from buoy.core.spec.model import Resources, SpecAction
from buoy.core.spec.plan import SpecPlan
from buoy.core.spec.template import parse, segment_of

_BEFORE_READY = frozenset({JobStatus.BLOCKED, JobStatus.CANCELLED})


def action_jobs(plan: SpecPlan, action: SpecAction) -> list[str]:
    """The names of the jobs that an action of the spec is about. A step that is no longer there is left out."""
    if not action.jobs:
        return [each.id for each in plan.steps]
    found = (name for text in action.jobs for name in plan.ids(segment_of(parse(text)), plan.singles))
    return [name for name in dict.fromkeys(found) if name in plan.index]


def covered_jobs(plan: SpecPlan) -> set[str]:
    """The jobs for which an action of the spec schedules nodes."""
    wanted = (each for each in plan.spec.actions if each.kind == "schedule_nodes")
    return {name for each in wanted for name in action_jobs(plan, each)}


def due_actions(
    jobs: Sequence[PendingJob], plan: SpecPlan, cluster: ClusterState, *, ended: bool
) -> list[ClusterAction]:
    """The actions of the spec whose trigger holds and that were not executed. `ended`: the run has."""
    waiting = [each for each in cluster.actions.values() if each.given is not None and not each.executed]
    if not waiting:
        return []
    status = {job.view.job: job.view.status for job in jobs}
    return [each for each in waiting if _holds(each, plan, status, ended=ended)]


def _holds(action: ClusterAction, plan: SpecPlan, status: dict[str, JobStatus], *, ended: bool) -> bool:
    assert action.given is not None
    match action.trigger:
        case "on_workflow_start":
            return not ended
        case "on_workflow_complete":
            return ended
        case "on_jobs_complete":
            return all(status[name] in SETTLED for name in action_jobs(plan, action.given))
        case "on_jobs_ready":
            return any(status[name] not in _BEFORE_READY for name in action_jobs(plan, action.given))


class NodeRequest(msgspec.Struct, frozen=True):
    """What a plan of allocations needs beside the run."""

    partitions: Sequence[Partition]
    wishes: Wishes
    new_name: Callable[[int], str]


def fired(
    action: ClusterAction, jobs: Sequence[PendingJob], plan: SpecPlan, cluster: ClusterState, request: NodeRequest
) -> list[c.ClusterChange]:
    """The claim of an action of the spec that schedules nodes, with its allocations.

    Empty: live allocations suffice for its jobs that are ready, and it waits for others.
    """
    assert action.given is not None
    changes: list[c.ClusterChange] = [c.ActionExecuted(action.action)]
    for resources, count in _pending_shapes(jobs, plan, action.given).items():
        changes += _nodes(action, resources, count, cluster.after(changes), request)
    planned = any(isinstance(each, c.AllocationPlanned) for each in changes)
    return changes if planned or action.trigger != "on_jobs_ready" else []


def foreseen(jobs: Sequence[PendingJob], plan: SpecPlan, request: NodeRequest) -> list[PlannedGroup]:
    """What the actions of a spec would ask for if their triggers held now, with nothing at Slurm."""
    found = []
    for action in ClusterState((), plan.spec.actions).actions.values():
        if action.given is None or action.kind != "schedule_nodes":
            continue
        for resources, count in _pending_shapes(jobs, plan, action.given).items():
            changes = _nodes(action, resources, count, ClusterState(()), request)
            for made in (each for each in changes if isinstance(each, c.SchedulerAdded)):
                planned, seconds = len(changes) - 1, made.walltime_s
                group = PlannedGroup(made.name, made.group, made.deferred, count, 0, planned, seconds, action.trigger)
                found.append(group)
    return found


def _pending_shapes(jobs: Sequence[PendingJob], plan: SpecPlan, given: SpecAction) -> dict[Resources, int]:
    """How many pending jobs of an action need which resources."""
    names, found = set(action_jobs(plan, given)), dict[Resources, int]()
    for job in jobs:
        if job.view.job in names and job.pending:
            found[job.resources] = found.get(job.resources, 0) + 1
    return found


def _nodes(
    action: ClusterAction, resources: Resources, jobs: int, cluster: ClusterState, request: NodeRequest
) -> list[c.ClusterChange]:
    given, deferred = action.given, action.trigger != "on_workflow_start"
    assert given is not None
    wishes = msgspec.structs.replace(
        request.wishes,
        account=given.account or request.wishes.account,
        partition=given.partition or request.wishes.partition,
        walltime_s=given.walltime_s or request.wishes.walltime_s,
    )
    name = scheduler_name(resources, deferred=deferred) + f".{action.action}"
    scheduler = scheduler_for(name, resources, jobs, deferred=deferred, wishes=wishes, partitions=request.partitions)
    served = sum(cluster.serves(each, resources) for each in cluster.live)
    allowed = wishes.allocations_max - cluster.serving(resources)
    count = given.allocations or allocations_needed(scheduler, jobs, served, allowed)
    if not count:
        return []
    first = len(cluster.allocations)
    return [scheduler, *_planned(scheduler.name, range(first, first + count), request.new_name)]


def _planned(scheduler: str, numbers: Iterable[int], new_name: Callable[[int], str]) -> list[c.ClusterChange]:
    return [c.AllocationPlanned(new_name(number + 1), scheduler) for number in numbers]


def ready_actions(
    jobs: Sequence[PendingJob], cluster: ClusterState, allocations_max: int, new_name: Callable[[int], str]
) -> list[c.ClusterChange]:
    """The actions of plans whose jobs are ready while no live allocation could run them, with their allocations.

    What one action asks for may serve the jobs of the next: after a reset of actions several are about the same jobs.
    """
    changes: list[c.ClusterChange] = []
    for action in cluster.actions.values():
        scheduler = cluster.schedulers.get(action.scheduler)
        if action.executed or scheduler is None:
            continue
        shapes = scheduler.shapes or (scheduler.group,)
        members = [job for job in jobs if job.pending and group_name(job.resources) in shapes]
        ready = [job for job in members if job.view.status is not JobStatus.BLOCKED]
        now = cluster.after(changes)
        if not ready or any(now.serves(each, ready[0].resources) for each in now.live):
            continue
        first = len(now.allocations)
        count = allocations_needed(scheduler, len(ready), 0, allocations_max)
        changes.append(c.ActionExecuted(action.action))
        changes += _planned(scheduler.name, range(first, first + count), new_name)
    return changes
