"""Recovery of a batch run's jobs: why each failed, which limits grow, and which jobs run again.

Invariants: a limit never shrinks. A job that failed for an unknown reason is reset only if the caller says so. Jobs
that run are left alone: a recovery needs no rest. A dry run changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from buoy.core.batch.allocations import Allocation, ClusterState
from buoy.core.batch.job_causes import JobEvidence, evidence_of, job_cause
from buoy.core.batch.jobs import JobStatus, JobView
from buoy.core.batch.lots import ResetJobs
from buoy.core.batch.resources import (
    MEMORY_GUESS_BYTES,
    ONE_CPU,
    Correction,
    Shortage,
    corrected,
)
from buoy.core.ids import LeafId, RunId, leaf_id
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.spec.model import Resources
from buoy.engine.client.client import Client
from buoy.engine.client.requests import waits_for_whom
from buoy.operations.batch.changes import send_jobs
from buoy.operations.batch.jobs import BatchLog

_NO_CLUSTER = ClusterState(())


class JobRecovery(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is done about one failed job. New limits are there only if they changed."""

    job: str
    leaf: LeafId
    cause: str
    reset: bool
    why: str = ""
    old_memory_bytes: int | None = None
    memory_bytes: int | None = None
    old_time_s: float | None = None
    time_s: float | None = None
    # It was killed with the machine that it ran on: it runs again with the same limits, and that is no recovery of it.
    is_loss: bool = False
    # It is free already, and no reset is needed: the next runner runs it again.
    free: bool = False
    # Its reset was sent before, and no runner has read it yet.
    waiting: bool = False
    evidence: JobEvidence = JobEvidence()


class JobsRecovered(msgspec.Struct, frozen=True):
    """What was found, and what was done or would be."""

    run_id: RunId
    dry_run: bool
    jobs: tuple[JobRecovery, ...]
    text: str = ""


async def send_resets(client: Client, run_id: RunId, plan: Sequence[JobRecovery], recovery: e.ResetBy) -> str:
    """Sends one message with all resets of a plan, and says who will read it, or those that were sent before."""
    again = [each for each in plan if each.reset and not each.free and not each.waiting]
    if not again:
        waits = any(each.waiting for each in plan)
        return await waits_for_whom(client, run_id) if waits else ""
    limits = {
        each.leaf: e.JobLimits(each.memory_bytes, each.time_s)
        for each in again
        if each.memory_bytes is not None or each.time_s is not None
    }
    return await send_jobs(client, run_id, ResetJobs(tuple(each.leaf for each in again), limits, recovery))


def plan_recovery(
    batch: BatchLog,
    rule: Correction,
    *,
    retry_unknown: bool,
    cluster: ClusterState = _NO_CLUSTER,
    views: Sequence[JobView] = (),
) -> list[JobRecovery]:
    """What is to be done about each job that failed finally. `views`: all jobs, those that were lost among them."""
    planner = _Planner(batch, rule, cluster, retry_unknown=retry_unknown)
    held = [planner.held(leaf) for leaf in batch.state.open.values() if leaf.phase == "held"]
    gone = [each for each in views if each.lost or each.status is JobStatus.TERMINATED]
    shares = Counter(each.allocation for each in gone)
    return held + [planner.lost(each, shares[each.allocation]) for each in gone]


class _Planner:
    """What is done about single jobs of one run."""

    def __init__(self, batch: BatchLog, rule: Correction, cluster: ClusterState, *, retry_unknown: bool) -> None:
        self._batch = batch
        self._rule = rule
        self._cluster = cluster
        self._retry_unknown = retry_unknown

    def held(self, leaf: Leaf) -> JobRecovery:
        error = leaf.error or e.ErrorInfo(type="Unknown", message="")
        place = self._cluster.allocations.get(str(error.facts.get("allocation")))
        evidence, old = evidence_of(error, place), _resources(self._batch, leaf.name, leaf.id)
        found = job_cause(evidence, error, old)
        made = JobRecovery(job=leaf.name, leaf=leaf.id, cause=found.cause, reset=True, evidence=evidence)
        if found.shortage is None:
            if found.again or self._retry_unknown:
                return replace(made, is_loss=found.is_loss)
            why = "more resources do not help; correct its cause, then reset it, or add --retry-unknown"
            return replace(made, reset=False, why=why)
        base = old if place is None else self._guessed(old, place, 1)
        raised = self._raised(made, old, base, found.shortage, evidence.peak_memory_bytes)
        if raised is not None:
            return raised
        has_limit = old.memory_bytes if found.shortage == "memory" else old.time_s
        why = f"its {found.shortage} is at its cap already"
        if not has_limit:
            why = f"it has no limit of {found.shortage} that could grow"
        return replace(made, reset=self._retry_unknown, why=why)

    def lost(self, view: JobView, share: int) -> JobRecovery:
        """A job that was lost or stopped with its runner is free. It only has to be reset if its limits change."""
        leaf = leaf_id("", view.job, 1)
        place = self._cluster.allocations.get(view.allocation or "")
        evidence, old = evidence_of(None, place), _resources(self._batch, view.job, leaf)
        found = job_cause(evidence, None, old)
        made = JobRecovery(job=view.job, leaf=leaf, cause=found.cause, reset=True, free=True, evidence=evidence)
        if found.shortage is None or place is None:
            return made
        base = self._guessed(old, place, share)
        peak = (place.peak_memory_bytes or 0) // max(1, share)
        return self._raised(replace(made, free=False), old, base, found.shortage, peak) or made

    def _guessed(self, old: Resources, place: Allocation, share: int) -> Resources:
        """The limits that a job without limits had by those of its allocation, which it shared with others."""
        scheduler = self._cluster.schedulers.get(place.scheduler)
        memory, time_s = old.memory_bytes, old.time_s
        if memory is None:
            whole = (scheduler.memory_bytes if scheduler is not None else None) or 0
            memory = max(MEMORY_GUESS_BYTES, whole // max(1, share))
        if time_s is None:
            time_s = max(place.elapsed_s or 0.0, 0.0 if scheduler is None else scheduler.walltime_s) or None
        return replace(old, memory_bytes=memory, time_s=time_s)

    def _raised(
        self, made: JobRecovery, old: Resources, base: Resources, shortage: Shortage, peak: int | None
    ) -> JobRecovery | None:
        """With a higher limit; None: it cannot grow."""
        new = corrected(base, shortage, self._rule, peak)
        if new == old:
            return None
        return replace(
            made,
            old_memory_bytes=old.memory_bytes,
            memory_bytes=new.memory_bytes if shortage == "memory" else None,
            old_time_s=old.time_s,
            time_s=new.time_s if shortage == "time" else None,
        )


def _resources(batch: BatchLog, name: str, leaf: LeafId) -> Resources:
    """The limits that the job had when it failed."""
    step = batch.plan.steps[batch.plan.index[name]].step
    needed = step.resources or ONE_CPU
    if step.timeout_s is not None and (needed.time_s is None or step.timeout_s < needed.time_s):
        needed = replace(needed, time_s=step.timeout_s)
    changed = batch.state.limits.get(leaf)
    if changed is None:
        return needed
    return replace(
        needed,
        memory_bytes=changed.memory_bytes or needed.memory_bytes,
        time_s=changed.time_s or needed.time_s,
    )
