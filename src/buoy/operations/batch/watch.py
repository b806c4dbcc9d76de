"""Watch: one look after the other at the jobs of a batch run, with the rate at which they end."""

from __future__ import annotations

import msgspec

from buoy.core.batch.jobs import SETTLED, JobStatus, JobView, counts
from buoy.core.ids import RunId
from buoy.operations.access import StoreAccess
from buoy.operations.batch.job_list import run_trouble
from buoy.operations.batch.jobs import BatchLog, read_batch, views_of

_FAILURES_SHOWN = 5
# The rate is that of the last looks.
_LOOKS_KEPT = 30
_REST_MAX_S = 30.0


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
    # Why the run as a whole does not continue, if it does not.
    trouble: str | None = None
    per_minute: float | None = None
    left_s: float | None = None


class JobWatch:
    """Looks at one run."""

    def __init__(self, access: StoreAccess, run_id: RunId) -> None:
        self._access = access
        self._run_id = run_id
        self._looks: list[tuple[float, int]] = []
        self._known: BatchLog | None = None
        # After a look: looks of many jobs that rest so long in between leave the machine to the jobs.
        self.rest_s = 0.0

    async def look(self) -> BatchProgress:
        """Reads what the log has since the last look."""
        began = self._access.clock.monotonic()
        self._known = await read_batch(self._access, self._run_id, self._known)
        views = await views_of(self._access, self._known)
        trouble = await run_trouble(self._access, self._known)
        self.rest_s = min(_REST_MAX_S, 9 * (self._access.clock.monotonic() - began))
        return self._progress(str(self._known.state.status), views, trouble)

    def _progress(self, status: str, views: list[JobView], trouble: str | None) -> BatchProgress:
        running: dict[str, list[JobView]] = {}
        for job in views:
            if job.status is JobStatus.RUNNING and job.runner is not None:
                running.setdefault(job.runner, []).append(job)
        runners = tuple(
            RunnerJobs(runner, jobs[0].host, tuple(job.job for job in jobs)) for runner, jobs in sorted(running.items())
        )
        failed = sorted((job for job in views if job.status is JobStatus.FAILED), key=lambda job: -(job.since or 0))
        tally = counts(views)
        rate_s = self._rate(tally.get(JobStatus.COMPLETED, 0))
        left = sum(count for status, count in tally.items() if status not in SETTLED)
        return BatchProgress(
            run_id=self._run_id,
            status=status,
            counts=tally,
            runners=runners,
            failures=tuple(failed[:_FAILURES_SHOWN]),
            trouble=trouble,
            per_minute=None if rate_s is None else round(60 * rate_s, 1),
            left_s=None if not rate_s else round(left / rate_s, 1),
        )

    def _rate(self, completed: int) -> float | None:
        """Jobs a second since the first look that is kept."""
        self._looks = [*self._looks, (self._access.clock.monotonic(), completed)][-_LOOKS_KEPT:]
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return None if last_at <= first_at else (last - first) / (last_at - first_at)
