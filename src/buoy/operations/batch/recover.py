"""Recovery of a batch run's jobs: why each failed, which limits grow, and which jobs run again.

Invariants: a limit never shrinks. A job that failed for an unknown reason is reset only if the caller says so. Jobs
that run are left alone: a recovery needs no rest. A dry run changes nothing.
"""

from __future__ import annotations

import msgspec

from buoy.core.batch.jobs import cause_of
from buoy.core.batch.lots import ResetJobs
from buoy.core.batch.resources import ONE_CPU, Correction, Shortage, check_correction, corrected
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.state import Leaf
from buoy.core.spec.model import Resources
from buoy.engine.client.client import Client
from buoy.operations.batch.changes import send_jobs
from buoy.operations.batch.jobs import BatchLog, read_batch

_SHORTAGES: dict[str, Shortage] = {"oom": "memory", "timeout": "time"}
# Failures of machines and runners, not of jobs.
_INFRASTRUCTURE = ("LotFailed", "GuardLost")


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


class JobsRecovered(msgspec.Struct, frozen=True):
    """What was found, and what was done or would be."""

    run_id: RunId
    dry_run: bool
    jobs: tuple[JobRecovery, ...]
    text: str = ""


async def recover_jobs(
    client: Client, run_id: RunId, rule: Correction, *, retry_unknown: bool = False, dry_run: bool = False
) -> JobsRecovered:
    """Resets failed jobs, with higher limits where they met one."""
    batch = await read_batch(client, run_id)
    plan = plan_recovery(batch, check_correction(rule), retry_unknown=retry_unknown)
    text = ""
    again = [each for each in plan if each.reset]
    if again and not dry_run:
        limits = {
            each.leaf: e.JobLimits(each.memory_bytes, each.time_s)
            for each in again
            if each.memory_bytes is not None or each.time_s is not None
        }
        text = await send_jobs(client, run_id, ResetJobs(tuple(each.leaf for each in again), limits))
    return JobsRecovered(run_id, dry_run, tuple(plan), text)


def plan_recovery(batch: BatchLog, rule: Correction, *, retry_unknown: bool) -> list[JobRecovery]:
    """What is to be done about each job that failed for good."""
    held = [leaf for leaf in batch.state.open.values() if leaf.phase == "held"]
    return [_job(batch, leaf, rule, retry_unknown=retry_unknown) for leaf in held]


def _job(batch: BatchLog, leaf: Leaf, rule: Correction, *, retry_unknown: bool) -> JobRecovery:
    error = leaf.error or e.ErrorInfo(type="Unknown", message="")
    cause = cause_of(error)
    old = _resources(batch, leaf)
    shortage = _SHORTAGES.get(cause)
    if shortage is None:
        again = retry_unknown or error.type in _INFRASTRUCTURE or error.kind == "transient"
        why = "" if again else "more resources do not help; correct its cause, then reset it, or add --retry-unknown"
        return JobRecovery(job=leaf.name, leaf=leaf.id, cause=cause, reset=again, why=why)
    peak = error.facts.get("peak_memory_bytes")
    new = corrected(old, shortage, rule, peak if isinstance(peak, int) else None)
    if new == old:
        has_limit = old.memory_bytes if shortage == "memory" else old.time_s
        why = f"its {shortage} is at its cap already" if has_limit else f"it has no limit of {shortage} that could grow"
        return JobRecovery(job=leaf.name, leaf=leaf.id, cause=cause, reset=retry_unknown, why=why)
    return JobRecovery(
        job=leaf.name,
        leaf=leaf.id,
        cause=cause,
        reset=True,
        old_memory_bytes=old.memory_bytes,
        memory_bytes=new.memory_bytes if shortage == "memory" else None,
        old_time_s=old.time_s,
        time_s=new.time_s if shortage == "time" else None,
    )


def _resources(batch: BatchLog, leaf: Leaf) -> Resources:
    """The limits that the job had when it failed."""
    step = batch.plan.steps[batch.plan.index[leaf.name]].step
    needed = step.resources or ONE_CPU
    if step.timeout_s is not None and (needed.time_s is None or step.timeout_s < needed.time_s):
        needed = msgspec.structs.replace(needed, time_s=step.timeout_s)
    changed = batch.state.limits.get(leaf.id)
    if changed is None:
        return needed
    return msgspec.structs.replace(
        needed,
        memory_bytes=changed.memory_bytes or needed.memory_bytes,
        time_s=changed.time_s or needed.time_s,
    )
