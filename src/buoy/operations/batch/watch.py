"""Watch: one look after the other at the jobs of a batch run, with the rate at which they end."""

from __future__ import annotations

import msgspec

from buoy.core.batch.jobs import SETTLED, JobStatus, JobView
from buoy.core.ids import RunId
from buoy.operations.access import StoreAccess
from buoy.operations.batch.jobs import list_jobs

_FAILURES_SHOWN = 5
# The rate is that of the last looks.
_LOOKS_KEPT = 30


class RunnerJobs(msgspec.Struct, frozen=True):
    """What one runner runs now."""

    runner: str
    host: str | None
    jobs: tuple[str, ...]


class BatchProgress(msgspec.Struct, frozen=True):
    """One look at a batch run. `left_s`: at the present rate, if there is one."""

    run_id: RunId
    status: str
    counts: dict[JobStatus, int]
    runners: tuple[RunnerJobs, ...]
    failures: tuple[JobView, ...]
    per_minute: float | None = None
    left_s: float | None = None


class JobWatch:
    """Looks at one run."""

    def __init__(self, access: StoreAccess, run_id: RunId) -> None:
        self._access = access
        self._run_id = run_id
        self._looks: list[tuple[float, int]] = []

    async def look(self) -> BatchProgress:
        found = await list_jobs(self._access, self._run_id)
        running: dict[str, list[JobView]] = {}
        for job in found.jobs:
            if job.status is JobStatus.RUNNING and job.runner is not None:
                running.setdefault(job.runner, []).append(job)
        runners = tuple(
            RunnerJobs(runner, jobs[0].host, tuple(job.job for job in jobs)) for runner, jobs in sorted(running.items())
        )
        failed = sorted(
            (job for job in found.jobs if job.status is JobStatus.FAILED), key=lambda job: -(job.since or 0)
        )
        rate_s = self._rate(found.counts.get(JobStatus.COMPLETED, 0))
        left = sum(count for status, count in found.counts.items() if status not in SETTLED)
        return BatchProgress(
            run_id=self._run_id,
            status=found.status,
            counts=found.counts,
            runners=runners,
            failures=tuple(failed[:_FAILURES_SHOWN]),
            per_minute=None if rate_s is None else round(60 * rate_s, 1),
            left_s=None if not rate_s else round(left / rate_s, 1),
        )

    def _rate(self, completed: int) -> float | None:
        """Jobs a second since the first look that is kept."""
        self._looks = [*self._looks, (self._access.clock.monotonic(), completed)][-_LOOKS_KEPT:]
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return None if last_at <= first_at else (last - first) / (last_at - first_at)
