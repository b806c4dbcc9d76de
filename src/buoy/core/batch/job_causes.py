"""Causes of failed and lost jobs: from how the job ended, what it used, and what Slurm said about its allocation. Pure.

Invariants: what the runner measured counts first. A signal alone proves nothing: it takes the word of the scheduler, or
a use near the limit, to call it a shortage. A loss of the machine is never the job's own failure.
"""

from __future__ import annotations

import msgspec

from buoy.core.batch.allocations import Allocation
from buoy.core.batch.jobs import ALLOCATION_LOST, RUNNER_LOST, cause_of
from buoy.core.batch.resources import Shortage
from buoy.core.batch.slurm_text import Cause
from buoy.core.log import events as e
from buoy.core.spec.model import Resources

# A job that was killed with so much of its limit in use met that limit.
_NEAR = 0.9
_KILLED = ("SIGKILL", 128 + 9)
_ASKED = ("SIGTERM", "SIGXCPU", 128 + 15, 128 + 24)
# Failures of machines and runners, not of jobs.
INFRASTRUCTURE = ("LotFailed", "GuardLost")
_LOSSES = (Cause.PREEMPTED, Cause.NODE_FAIL, Cause.CANCELLED)


class JobEvidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known about the end of a job. Without a type it was lost or stopped with its runner."""

    type: str = ""
    exit_code: int | None = None
    signal: str | None = None
    peak_memory_bytes: int | None = None
    duration_s: float | None = None
    # Its allocation, as far as the run's log names it.
    allocation: str | None = None
    allocation_cause: str | None = None
    allocation_state: str | None = None
    allocation_elapsed_s: float | None = None
    allocation_peak_memory_bytes: int | None = None


class JobCause(msgspec.Struct, frozen=True):
    """Why a job ended. `shortage`: more of that helps. `again`: the same limits help. `is_loss`: so did its machine."""

    cause: str
    shortage: Shortage | None = None
    again: bool = False
    is_loss: bool = False


def evidence_of(error: e.ErrorInfo | None, allocation: Allocation | None) -> JobEvidence:
    """The evidence of an error and an allocation. Without an error the job was lost."""
    facts = {} if error is None else error.facts
    names = ("exit_code", "signal", "peak_memory_bytes", "duration_s")
    measured = {name: facts[name] for name in names if facts.get(name) is not None}
    place = {}
    if allocation is not None:
        place = {
            "allocation": allocation.name,
            "allocation_cause": allocation.cause,
            "allocation_state": allocation.state,
            "allocation_elapsed_s": allocation.elapsed_s,
            "allocation_peak_memory_bytes": allocation.peak_memory_bytes,
        }
    return msgspec.convert({"type": "" if error is None else error.type, **measured, **place}, JobEvidence)


def job_cause(evidence: JobEvidence, error: e.ErrorInfo | None, limits: Resources) -> JobCause:
    """Why a job that failed finally did so, or why a lost one was lost."""
    if error is None:
        return _lost(evidence, limits)
    cause = cause_of(error)
    if cause == "oom":
        return JobCause(cause, "memory")
    if cause == "timeout":
        return JobCause(cause, "time")
    ended = {evidence.signal, evidence.exit_code}
    if ended & set(_KILLED) and (evidence.allocation_cause == Cause.OOM or _near_memory(evidence, limits)):
        return JobCause("oom", "memory")
    if ended & {*_KILLED, *_ASKED} and (evidence.allocation_cause == Cause.TIMEOUT or _near_time(evidence, limits)):
        return JobCause("timeout", "time")
    if ended & {*_KILLED, *_ASKED} and evidence.allocation_cause in _LOSSES:
        return JobCause(str(evidence.allocation_cause), again=True, is_loss=True)
    return JobCause(cause, again=error.type in INFRASTRUCTURE or error.kind == "transient")


def _lost(evidence: JobEvidence, limits: Resources) -> JobCause:
    match evidence.allocation_cause:
        case None:
            return JobCause(RUNNER_LOST if evidence.allocation is None else ALLOCATION_LOST, again=True)
        case Cause.OOM:
            return JobCause("oom", "memory")
        case Cause.TIMEOUT | Cause.COMPLETED:
            # A runner ends by itself when its time is nearly over. A job with a time limit fits the next allocation.
            return JobCause("timeout", None if limits.time_s else "time", again=True)
        case other:
            return JobCause(other, again=True)


def _near_memory(evidence: JobEvidence, limits: Resources) -> bool:
    return bool(limits.memory_bytes and (evidence.peak_memory_bytes or 0) >= _NEAR * limits.memory_bytes)


def _near_time(evidence: JobEvidence, limits: Resources) -> bool:
    return bool(limits.time_s and (evidence.duration_s or 0.0) >= _NEAR * limits.time_s)
