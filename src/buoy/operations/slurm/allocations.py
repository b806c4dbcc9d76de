"""Allocations: what a run has at its cluster, and the end of all that it no longer needs.

Invariant: only allocations that the run's own log names are cancelled, by id and name together.
"""

from __future__ import annotations

import asyncio

import msgspec

from buoy.core.batch.allocations import Allocation, ClusterAction, ClusterState
from buoy.core.batch.jobs import JobStatus
from buoy.core.batch.regenerate import PendingJob, surplus
from buoy.core.batch.resources import group_name
from buoy.core.batch.slurm_text import Phase
from buoy.core.ids import RunId
from buoy.core.log.cluster_changes import ActionsReset, AllocationEnded, SchedulerAdded
from buoy.engine.client.client import Client
from buoy.operations.access import StoreAccess
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm.cluster_log import change_cluster, read_cluster, read_view, run_age_s
from buoy.operations.slurm.pending_jobs import jobs_of
from buoy.ports.batch import BatchSystem

# The cause of an allocation that was cancelled because no job was left for it.
SURPLUS = "surplus"
_LOOK_S = 1.0


class ClusterReport(msgspec.Struct, frozen=True):
    """Schedulers, actions and allocations of a run, as its log has them."""

    run_id: RunId
    schedulers: tuple[SchedulerAdded, ...]
    actions: tuple[ClusterAction, ...]
    allocations: tuple[Allocation, ...]


class AllocationsCancelled(msgspec.Struct, frozen=True):
    """Jobs of Slurm that were asked to end."""

    run_id: RunId
    job_ids: tuple[str, ...]


class AllocatedJob(msgspec.Struct, frozen=True):
    """A job, the scheduler that it is assigned to, and the allocation that it runs in or was lost with."""

    job: str
    status: JobStatus
    group: str
    scheduler: str | None
    allocation: str | None
    job_id: str | None
    runner: str | None
    cause: str | None


class SlurmJobs(msgspec.Struct, frozen=True):
    """All jobs of a run, as they are at its cluster."""

    run_id: RunId
    jobs: tuple[AllocatedJob, ...]


async def slurm_jobs(access: StoreAccess, run_id: RunId) -> SlurmJobs:
    """The jobs of a run by scheduler and allocation; the scheduler is not asked."""
    view = await read_view(access, run_id)
    return SlurmJobs(run_id, tuple(_allocated(job, view.cluster) for job in jobs_of(view)))


def _allocated(job: PendingJob, cluster: ClusterState) -> AllocatedJob:
    view, group = job.view, group_name(job.resources)
    waits = view.status is JobStatus.BLOCKED
    made_for = [each for each in cluster.schedulers.values() if group in (each.shapes or (each.group,))]
    # The newest of those that were made for jobs that wait, or for jobs that do not; else any.
    fitting = [each for each in made_for if each.deferred == waits] or made_for
    place = cluster.allocations.get(view.allocation or "")
    return AllocatedJob(
        job=view.job,
        status=view.status,
        group=group,
        scheduler=place.scheduler if place is not None else fitting[-1].name if fitting else None,
        allocation=view.allocation,
        job_id=None if place is None else place.job_id,
        runner=view.runner,
        cause=view.cause,
    )


async def cluster_report(access: StoreAccess, run_id: RunId) -> ClusterReport:
    """What the log of a run says; the scheduler is not asked."""
    cluster = await read_cluster(access, await read_batch(access, run_id))
    return ClusterReport(
        run_id,
        tuple(cluster.schedulers.values()),
        tuple(cluster.actions.values()),
        tuple(cluster.allocations.values()),
    )


async def cancel_allocations(
    access: StoreAccess, batch: BatchSystem, run_id: RunId, *, waiting_only: bool = False
) -> AllocationsCancelled:
    """Asks Slurm to end the allocations of a run. `waiting_only`: those that have not started."""
    log = await read_batch(access, run_id)
    names = [each.name for each in (await read_cluster(access, log)).live]
    found = (await batch.states(names, run_age_s(access, log))).jobs if names else {}
    phases = (Phase.WAITING,) if waiting_only else (Phase.WAITING, Phase.ACTIVE)
    ids = tuple(job.job_id for jobs in found.values() for job in jobs if job.phase in phases)
    await batch.cancel(ids)
    return AllocationsCancelled(run_id, ids)


async def cancel_surplus(client: Client, batch: BatchSystem, run_id: RunId) -> tuple[str, ...]:
    """Cancels allocations that wait at Slurm although no job is left for them. Those that run end by themselves."""
    view = await read_view(client, run_id)
    names = [each.name for each in surplus(jobs_of(view), view.cluster)]
    if not names:
        return ()
    found = (await batch.states(names, run_age_s(client, view.batch))).jobs
    waiting = {
        name: [job.job_id for job in jobs]
        for name, jobs in found.items()
        if all(job.phase is Phase.WAITING for job in jobs)
    }
    ids = tuple(job_id for each in waiting.values() for job_id in each)
    await batch.cancel(ids)
    ended = [AllocationEnded(name, SURPLUS) for name in waiting]
    if ended:
        await change_cluster(client, run_id, lambda view: ended)
    return ids


async def end_allocations(client: Client, batch: BatchSystem, run_id: RunId, patience_s: float) -> tuple[str, ...]:
    """Ends all that a run has at its cluster: what waits at once, what runs after its jobs ended or were stopped.

    Runners of a run that ended stop their jobs and leave by themselves. What is left after that time is cancelled.
    """
    names = {each.name for each in (await read_cluster(client, await read_batch(client, run_id))).live}
    if not names:
        return ()
    ids = (await cancel_allocations(client, batch, run_id, waiting_only=True)).job_ids
    until = client.clock.monotonic() + patience_s
    while client.clock.monotonic() < until:
        runners = await client.store.runners()
        if not any(each.info.allocation and each.info.allocation.name in names for each in runners):
            break
        await asyncio.sleep(min(_LOOK_S, patience_s))
    ids = (*ids, *(await cancel_allocations(client, batch, run_id)).job_ids)
    await change_cluster(
        client, run_id, lambda view: [AllocationEnded(each.name, SURPLUS) for each in view.cluster.intents]
    )
    return ids


async def reset_actions(client: Client, run_id: RunId) -> ClusterReport:
    """Deletes recovery actions, and lets all others fire again."""
    await change_cluster(client, run_id, lambda view: [ActionsReset()] if view.cluster.actions else [])
    return await cluster_report(client, run_id)
