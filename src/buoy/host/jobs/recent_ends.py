"""Ends of commands of the last moments, which the guard writes to disk if its runner dies.

Why: a killed runner may not have recorded the last reports of its guard. The next runner finds these files, and
runs none of those commands again. Older ends are in the store, or the runner has spooled them itself.
Invariants: a file is whole or absent, private, and names the store and the job that it is about. Standard library
only: the guard imports nothing else.
"""

import json
import os
from collections import deque

from buoy.host.jobs.guarded_job import GuardedJob

KEPT_S = 2.0
SUFFIX = ".told"


class RecentEnds:
    """The last ends of one guard."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, GuardedJob, dict[str, object]]] = deque()

    def add(self, now: float, job: GuardedJob, report: "dict[str, object]") -> None:
        """A command ended by itself. What was stopped is not an end of the job.

        What a signal ended may have been lost with its runner: a scheduler signals all processes of an allocation.
        """
        while self._ends and self._ends[0][0] < now - KEPT_S:
            self._ends.popleft()
        if not job.stopped and (job.over_memory or not _by_signal(report)):
            self._ends.append((now, job, report))

    def write(self) -> None:
        """The runner is gone."""
        for _, job, report in self._ends:
            _write(job.result.removesuffix(".result") + SUFFIX, {**report, "mark": job.mark})
        self._ends.clear()


def _by_signal(report: "dict[str, object]") -> bool:
    """A shell tells the signal that ended its child as 128 and the number."""
    return report["kind"] == "signal" or int(str(report["number"])) > 128


def _write(path: str, report: "dict[str, object]") -> None:
    draft = path.removesuffix(SUFFIX) + ".draft"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, json.dumps(report).encode())
        finally:
            os.close(handle)
        os.rename(draft, path)
    except OSError:
        pass  # there is no process left to tell; the command runs again
