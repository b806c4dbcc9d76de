"""Lanes of short jobs in the guard: the next one begins as soon as one ends, without a message from the runner.

Invariants: a lane runs at most as many commands at a time as its runner has places. A command that is
stopped before it began never begins. Standard library only: the guard imports nothing else.
"""

from buoy.host.jobs.guarded_job import GuardedJob


class _Lane:
    """Commands that share places. The queue is in the order of arrival."""

    def __init__(self) -> None:
        self.places = 0
        self.running = 0
        self.queue: dict[object, GuardedJob] = {}


class JobLanes:
    """All lanes of one guard."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._queued = 0
        # No queue moves any more: the runner stops.
        self.held = False

    @property
    def queued(self) -> int:
        """How many commands wait for their turn."""
        return 0 if self.held else self._queued

    def admit(self, job: GuardedJob) -> bool:
        """Whether this command may begin now. Else it waits in its lane."""
        if not job.lane:
            return True
        lane = self._lanes.setdefault(job.lane, _Lane())
        lane.places = job.places
        if lane.running < lane.places and not self.held:
            lane.running += 1
            return True
        lane.queue[job.id] = job
        self._queued += 1
        return False

    def withdraw(self, job: GuardedJob) -> bool:
        """Whether this command waited; it does no longer."""
        lane = self._lanes.get(job.lane)
        if lane is None or lane.queue.pop(job.id, None) is None:
            return False
        self._queued -= 1
        return True

    def left(self, job: GuardedJob) -> "GuardedJob | None":
        """A command that had started has ended: the one that begins in its place."""
        lane = self._lanes.get(job.lane)
        if lane is None:
            return None
        lane.running -= 1
        if lane.queue and lane.running < lane.places and not self.held:
            following = lane.queue.pop(next(iter(lane.queue)))
            self._queued -= 1
            lane.running += 1
            return following
        if not lane.running and not lane.queue:
            del self._lanes[job.lane]
        return None
