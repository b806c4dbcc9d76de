"""Why jobs ended: tables of evidence in, causes out."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.batch.allocations import Allocation, AllocationStatus
from buoy.core.batch.job_causes import evidence_of, job_cause
from buoy.core.log import events as e
from buoy.core.spec.model import Resources

LIMITS = Resources(memory_bytes=1_000, time_s=100.0)
FREE = Resources()


def ended(cause: str | None) -> Allocation | None:
    """An allocation that ended for this cause: "" for one that Slurm does not tell, None for no allocation."""
    if cause is None:
        return None
    return Allocation(name="a1", scheduler="s", status=AllocationStatus.COMPLETE, cause=cause or None, elapsed_s=60.0)


def failed(type: str = "ExitCode", kind: str = "unknown", **facts: Any) -> e.ErrorInfo:
    return e.ErrorInfo(type=type, message="", kind=kind, facts=facts)


@pytest.mark.parametrize(
    ("error", "allocation", "found"),
    [
        (failed("OutOfMemory"), None, ("oom", "memory", False)),
        (failed("TimeLimit"), None, ("timeout", "time", False)),
        (failed(exit_code=9), None, ("exit_code", None, False)),
        (failed(exit_code=9), "oom", ("exit_code", None, False)),
        (failed(exit_code=137), None, ("exit_code", None, False)),
        (failed(exit_code=137), "oom", ("oom", "memory", False)),
        (failed("Killed", signal="SIGKILL"), "oom", ("oom", "memory", False)),
        (failed("Killed", signal="SIGKILL", peak_memory_bytes=950), None, ("oom", "memory", False)),
        (failed("Killed", signal="SIGKILL", peak_memory_bytes=500), None, ("signal", None, False)),
        (failed("Killed", signal="SIGTERM"), "timeout", ("timeout", "time", False)),
        (failed(exit_code=143, duration_s=99.0), None, ("timeout", "time", False)),
        (failed(exit_code=143, duration_s=9.0), None, ("exit_code", None, False)),
        (failed("Killed", signal="SIGKILL"), "preempted", ("preempted", None, True)),
        (failed("Killed", signal="SIGTERM"), "node_fail", ("node_fail", None, True)),
        (failed("Killed", signal="SIGTERM"), "completed", ("signal", None, False)),
        (failed("LotFailed"), None, ("LotFailed", None, True)),
        (failed("Odd", "transient"), None, ("Odd", None, True)),
    ],
)
def test_a_failure_is_judged_by_its_signature_its_use_and_the_word_of_slurm(
    error: e.ErrorInfo, allocation: str | None, found: tuple[str, str | None, bool]
) -> None:
    cause = job_cause(evidence_of(error, ended(allocation)), error, LIMITS)
    assert (cause.cause, cause.shortage, cause.again) == found


@pytest.mark.parametrize(
    ("allocation", "limits", "found"),
    [
        (None, FREE, ("runner_lost", None, True)),
        ("", FREE, ("allocation_lost", None, True)),
        ("oom", FREE, ("oom", "memory", False)),
        ("timeout", FREE, ("timeout", "time", True)),
        ("timeout", LIMITS, ("timeout", None, True)),
        ("completed", FREE, ("timeout", "time", True)),
        ("preempted", FREE, ("preempted", None, True)),
        ("cancelled", LIMITS, ("cancelled", None, True)),
        ("unknown", FREE, ("unknown", None, True)),
    ],
)
def test_a_lost_job_has_the_cause_of_its_allocation(
    allocation: str | None, limits: Resources, found: tuple[str, str | None, bool]
) -> None:
    cause = job_cause(evidence_of(None, ended(allocation)), None, limits)
    assert (cause.cause, cause.shortage, cause.again) == found


def test_the_evidence_has_what_accounting_told() -> None:
    found = evidence_of(failed(exit_code=137, peak_memory_bytes=5, host="n1"), ended("oom"))
    assert (found.type, found.exit_code, found.peak_memory_bytes) == ("ExitCode", 137, 5)
    assert (found.allocation, found.allocation_cause, found.allocation_elapsed_s) == ("a1", "oom", 60.0)
