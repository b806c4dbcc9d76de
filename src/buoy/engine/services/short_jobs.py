"""Short jobs: which of them queue for places that jobs with the same needs have, and how long such jobs take.

Invariant: a queue is bounded by the places that serve it. Why: a job of milliseconds would otherwise wait longer for a
commit and for a word from this process than it runs.
"""

from __future__ import annotations

from buoy.core.limits import JOB_SHORT_S, JOBS_MEASURED, JOBS_QUEUED_MAX
from buoy.core.spec.model import Resources


class ShortJobs:
    """The queues of one room."""

    def __init__(self) -> None:
        self._mean_s: dict[Resources, float] = {}
        self._queues: dict[Resources, dict[str, None]] = {}
        # How many places serve each queue.
        self._places: dict[Resources, int] = {}
        self._needs: dict[str, Resources] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._needs

    def measure(self, resources: Resources, seconds: float) -> None:
        """A job with these needs took so long."""
        mean_s = self._mean_s.get(resources, seconds)
        self._mean_s[resources] = mean_s + (seconds - mean_s) / JOBS_MEASURED

    def places(self, resources: Resources) -> int:
        return self._places.get(resources, 0)

    def add_place(self, resources: Resources, more: int = 1) -> None:
        left = self.places(resources) + more
        if left > 0:
            self._places[resources] = left
        else:
            self._places.pop(resources, None)

    def room(self, resources: Resources) -> int:
        """How many more jobs may queue."""
        mean_s = self._mean_s.get(resources)
        if mean_s is None or mean_s > JOB_SHORT_S:
            return 0
        return JOBS_QUEUED_MAX * self.places(resources) - len(self._queues.get(resources, ()))

    def draining(self, resources: Resources) -> bool:
        """Whether less than half of the queue is left: time to fetch more."""
        return 2 * self.room(resources) > JOBS_QUEUED_MAX * self.places(resources)

    def queue(self, key: str, resources: Resources) -> None:
        self._queues.setdefault(resources, {})[key] = None
        self._needs[key] = resources

    def leave(self, key: str) -> bool:
        """Whether this job was in a queue."""
        resources = self._needs.pop(key, None)
        if resources is None:
            return False
        queue = self._queues[resources]
        del queue[key]
        if not queue:
            del self._queues[resources]
        return True

    def next(self, resources: Resources) -> str | None:
        """Takes the first out of the queue: it has a place now."""
        queue = self._queues.get(resources)
        if queue is None:
            return None
        key = next(iter(queue))
        self.leave(key)
        return key
