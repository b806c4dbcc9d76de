"""Sync: compares what a run's log says about its allocations with what the scheduler says, and corrects the log.

Invariants: the one function that finds orphans: `sync-status`, `recover` and `watch` call it. One question to the
scheduler per look. An unreachable scheduler changes nothing. An end is recorded first; then its runners are declared
dead, which releases what they held. A crash in between is found by the next call (J3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from buoy.core.batch.allocations import ClusterState
from buoy.core.batch.jobs import RUNNER_LOST, JobStatus
from buoy.core.batch.orphans import ClusterOrphan, RunnerSeat, find_orphans
from buoy.core.ids import RunId, RunnerId
from buoy.core.log.cluster_changes import AllocationEnded, ClusterChange
from buoy.engine.client.client import Client
from buoy.operations.slurm.cluster_log import ClusterView, change_cluster, read_view, run_age_s
from buoy.operations.slurm.pending_jobs import jobs_of, views_of
from buoy.operations.slurm.submission import LOOKS_APART_S
from buoy.ports.batch import BatchSystem, SchedulerAnswer
from buoy.ports.records import Evidence, RunnerRecord
from buoy.recovery.failure_detector import FailureDetector


class Synced(msgspec.Struct, frozen=True):
    """What was found, and corrected unless it was a dry run. `stuck`: jobs are ready and nothing will run them (J7)."""

    run_id: RunId
    dry_run: bool
    orphans: tuple[ClusterOrphan, ...]
    live: int
    stuck: bool = False


async def sync_status(
    client: Client, batch: BatchSystem, run_id: RunId, *, dry_run: bool = False, missed: Collection[str] | None = None,
    view: ClusterView | None = None,
) -> tuple[Synced, tuple[str, ...]]:  # fmt: skip
    """Finds orphans and corrects them. Also the names that the scheduler does not know, for the next look.

    `missed` None: this call makes both looks by itself, some seconds apart. `view`: what the caller has read already.
    """
    view = view or await read_view(client, run_id)
    seats = seats_of(await client.store.runners())
    absent = set(missed or ())
    age_s = run_age_s(client, view.batch)
    answer = await _answer(batch, view, age_s)
    found = find_orphans(view.cluster, answer.jobs, seats, absent)
    # An intent without an id may be submitted right now: that it is not there says nothing about it.
    submitted = {each.name for each in view.cluster.live if each.job_id is not None}
    absent &= submitted
    if missed is None and (gone := submitted & set(found.missing)):
        absent = gone
        await asyncio.sleep(LOOKS_APART_S)
        # Accounting had no end of them. The queue has to say it twice.
        again = await batch.states(gone, age_s, accounts=False)
        answer = SchedulerAnswer({**answer.jobs, **again.jobs}, answer.accounted)
        found = find_orphans(view.cluster, answer.jobs, seats, absent)
    dead = await _dead_elsewhere(client, view)
    orphans = (*_with_jobs(found.found, view), *_lost_with(dead, view))
    live = len(view.cluster.live) - sum(isinstance(each, AllocationEnded) for each in found.changes)
    if not dry_run:
        # Planned on what stands when it is recorded: another process may have recorded the same.
        def changes(now: ClusterView) -> Sequence[ClusterChange]:
            return find_orphans(now.cluster, answer.jobs, seats, absent).changes

        await change_cluster(client, run_id, changes)
        await _declare_dead(client, found.found)
        detector = FailureDetector(client.store, client.liveness, client.clock)
        for record, proof in dead:
            await detector.declare_dead(record, proof)
        await batch.cancel(found.twins)
    view.cluster.note_left(answer.jobs)
    stuck = _is_stuck(view, view.cluster.after(found.changes), orphans)
    if stuck:
        orphans = (*orphans, ClusterOrphan(code="J7"))
    missing = tuple(sorted(name for name in submitted if name not in answer.jobs))
    return Synced(run_id, dry_run, orphans, live, stuck), missing


async def _answer(batch: BatchSystem, view: ClusterView, age_s: float) -> SchedulerAnswer:
    names = [each.name for each in view.cluster.live]
    return await batch.states(names, age_s) if names else SchedulerAnswer({})


async def _declare_dead(client: Client, orphans: Sequence[ClusterOrphan]) -> None:
    for orphan in orphans:
        for runner in orphan.runners:
            evidence: Evidence = {
                "runner": runner,
                "proof": "its allocation ended",
                "scheduler": "slurm",
                "allocation": orphan.allocation,
                "job_id": orphan.job_id,
                "cause": orphan.cause,
                "state": orphan.state,
            }
            why = f"its allocation ended: {orphan.cause}"
            await client.store.declare_dead(RunnerId(runner), why, cause="taken_over", evidence=evidence)


async def _dead_elsewhere(client: Client, view: ClusterView) -> list[tuple[RunnerRecord, Evidence]]:
    """The holders of the run's lots that are in no allocation, and are proven dead from here."""
    holders = {each.dead for each in view.lots.values()}
    records = [each for each in await client.store.runners() if each.info.id in holders and not each.info.allocation]
    sights = await client.liveness.look(records)
    return [(each, proof) for each in records if (proof := sights[each.info.id].proof) is not None]


def _lost_with(dead: Sequence[tuple[RunnerRecord, Evidence]], view: ClusterView) -> tuple[ClusterOrphan, ...]:
    jobs = [job for job in views_of(view) if job.cause == RUNNER_LOST] if dead else []
    return tuple(
        ClusterOrphan(
            code="J3",
            cause=RUNNER_LOST,
            runners=(record.info.id,),
            jobs=tuple(job.job for job in jobs if job.lot is not None and view.lots[job.lot].dead == record.info.id),
        )
        for record, _ in dead
    )


def seats_of(runners: Sequence[RunnerRecord]) -> list[RunnerSeat]:
    """The living runners that are in allocations."""
    return [
        RunnerSeat(each.info.id, each.info.allocation.name, each.info.allocation.job_id, each.info.allocation.restart)
        for each in runners
        if each.gone_at is None and each.unreadable is None and each.info.allocation is not None
    ]


def _with_jobs(found: Sequence[ClusterOrphan], view: ClusterView) -> tuple[ClusterOrphan, ...]:
    held: dict[tuple[str, JobStatus], list[str]] = {}
    for job in views_of(view) if any(each.runners for each in found) else ():
        if job.runner is not None:
            held.setdefault((job.runner, job.status), []).append(job.job)

    def of(orphan: ClusterOrphan, status: JobStatus) -> tuple[str, ...]:
        return tuple(job for runner in orphan.runners for job in held.get((runner, status), ()))

    return tuple(
        msgspec.structs.replace(each, jobs=of(each, JobStatus.RUNNING), claimed=of(each, JobStatus.PENDING))
        for each in found
    )


def _is_stuck(view: ClusterView, cluster: ClusterState, orphans: Sequence[ClusterOrphan]) -> bool:
    """Whether a job could run, and no allocation that is at Slurm could run it."""
    if view.batch.document.ended or view.batch.state.pause is not None:
        return False
    waiting = (JobStatus.UNINITIALIZED, JobStatus.READY, JobStatus.TERMINATED)
    lost = {job for each in orphans for job in (*each.jobs, *each.claimed)}
    shapes = {
        each.resources
        for each in jobs_of(view)
        if each.view.status in waiting or each.view.lost or each.view.job in lost
    }
    there = [each for each in cluster.live if each.job_id is not None]
    return not all(any(cluster.serves(each, shape) for each in there) for shape in shapes)
