"""Room: what a runner has for jobs, and which jobs have it now.

Invariants: the sum of what the holders need never exceeds the capacity. A job that waits for room comes before jobs
that have not started. A place is given back exactly once. A place of short jobs passes from one to the next, and
is free after the last of them; the shell keeps them to as many as there are places.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from buoy.core.batch.resources import Capacity, fits, lack, less
from buoy.core.spec.model import Resources
from buoy.engine.services.short_jobs import ShortJobs
from buoy.ports.host import Clock


class JobPlace(msgspec.Struct, frozen=True):
    """What one job has. `gpus`: the names of its devices. `nodes`: other machines that are its own for that time.

    `shared`: short jobs with the same needs may queue for it.
    """

    resources: Resources
    gpus: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    shared: bool = False


class Room:
    """The room of one process."""

    def __init__(
        self,
        capacity: Capacity,
        clock: Clock,
        host: str = "",
        devices: Sequence[str] = (),
        nodes: Sequence[str] = (),
    ) -> None:
        """`nodes`: the names of the machines that jobs may use from here, its own first."""
        self.capacity = capacity
        self.node = nodes[0] if nodes else host
        self.host = host
        # The allocation of a cluster that this process is in.
        self.allocation = ""
        self._devices = tuple(devices) or tuple(map(str, range(capacity.gpus)))
        self.closed = False
        self.gives_back = True
        # Called when something became free.
        self.on_free: list[Callable[[], None]] = []
        self.on_close: list[Callable[[], None]] = []
        # Jobs of lots that are held here and have not started, by what they need.
        self.pending: dict[Resources, int] = {}
        self._clock = clock
        self._ends_at = None if capacity.time_left_s is None else clock.monotonic() + capacity.time_left_s
        self._places: dict[str, JobPlace] = {}
        self._free = capacity
        self._gpus = list(self._devices[: capacity.gpus])
        self._nodes = list(nodes[1 : capacity.nodes])
        self._waiting: deque[tuple[str, JobPlace, asyncio.Future[None]]] = deque()
        self._begun: set[str] = set()
        # Who waits for the end of a job, by its name.
        self._left: dict[str, list[Callable[[], object]]] = {}
        self.short = ShortJobs()

    @property
    def time_left_s(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - self._clock.monotonic())

    @property
    def running(self) -> int:
        """How many jobs have a place."""
        return len(self._places)

    def takes(self, resources: Resources) -> bool:
        """Whether one more lot of such jobs should be claimed: one of them would begin, or almost."""
        if self.closed or self._waiting or not self._in_time(resources):
            return False
        ahead = sum(count for each, count in self.pending.items() if each.cpus or each.gpus)
        return ahead == 0 and (fits(resources, self._now()) or self.short.draining(resources))

    def ever(self, resources: Resources) -> bool:
        """Whether such a job could run here if nothing else did."""
        return self.lack(resources) is None

    def lack(self, resources: Resources) -> str | None:
        return lack(resources, msgspec.structs.replace(self.capacity, time_left_s=self.time_left_s))

    def reserve(self, key: str, resources: Resources, *, shared: bool = False) -> bool:
        """Gives a place to a job that is about to begin, if there is room now.

        `shared`: if there is none, the job may queue for the place of another one, and the shell begins it.
        """
        if self.closed or self._waiting or key in self._places or key in self.short:
            return False
        if fits(resources, self._now()):
            self._take(key, JobPlace(resources, shared=shared))
            return True
        if not shared or not self._in_time(resources) or self.short.room(resources) <= 0:
            return False
        self.short.queue(key, resources)
        return True

    def release(self, key: str) -> None:
        """The job has ended, or will not begin."""
        self._begun.discard(key)
        for each in self._left.pop(key, ()):
            each()
        if self.short.leave(key):
            return
        place = self._places.pop(key, None)
        if place is None:
            return
        following = self.short.next(place.resources) if place.shared else None
        if following is not None:
            self._places[following] = place
            for each in list(self.on_free):
                each()
            return
        self._give_back(place)
        self._hand_on()

    def _give_back(self, place: JobPlace) -> None:
        self._gpus.extend(place.gpus)
        self._nodes.extend(place.nodes)
        needed = place.resources
        if place.shared:
            self.short.add_place(needed, -1)
        self._free = Capacity(
            self._free.cpus + needed.cpus,
            self._free.memory_bytes + (needed.memory_bytes or 0),
            self._free.gpus + needed.gpus,
            self._free.nodes + needed.nodes - 1,
        )

    def _hand_on(self) -> None:
        """Gives what is free to those that wait for it, then to jobs that have not started."""
        while self._waiting and fits(self._waiting[0][1].resources, self._now()):
            key, place, future = self._waiting.popleft()
            if not future.done():
                if key not in self._places:
                    self._take(key, place)
                future.set_result(None)
        if not self._waiting:
            for each in list(self.on_free):
                each()

    def give_up(self, key: str) -> None:
        """The job will not begin, if it has not: its lot is driven here no longer."""
        if key not in self._begun:
            self.release(key)

    def when_left(self, key: str, left: Callable[[], object]) -> None:
        """Calls back when nothing of a job runs here: now, or at its end."""
        if key in self._begun:
            self._left.setdefault(key, []).append(left)
        else:
            left()

    async def enter(self, key: str, resources: Resources, *, shared: bool = False) -> JobPlace:
        """The place of a job, until `release`. A further attempt may have to wait for it."""
        place = JobPlace(resources, shared=shared)
        if key not in self.short and key not in self._places:
            await self._wait(key, place)
        self._begun.add(key)
        return self._places.get(key, place)

    async def _wait(self, key: str, place: JobPlace) -> None:
        if fits(place.resources, self._now()) and not self._waiting:
            self._take(key, place)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, place, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(key)  # it got its place at the very moment
            raise

    def _take(self, key: str, place: JobPlace) -> None:
        needed = place.resources
        gpus = tuple(sorted(self._gpus)[: needed.gpus])
        self._gpus = [each for each in self._gpus if each not in gpus]
        nodes, self._nodes = tuple(self._nodes[: needed.nodes - 1]), self._nodes[needed.nodes - 1 :]
        self._free = less(self._free, needed)
        if place.shared:
            self.short.add_place(needed)
        self._places[key] = msgspec.structs.replace(place, gpus=gpus, nodes=nodes) if gpus or nodes else place

    def _now(self) -> Capacity:
        if self._ends_at is None:
            return self._free
        return msgspec.structs.replace(self._free, time_left_s=self.time_left_s)

    def _in_time(self, resources: Resources) -> bool:
        left = self.time_left_s
        return left is None or resources.time_s is None or resources.time_s <= left

    def close(self, *, gives_back: bool = True) -> None:
        """No job begins any more. `gives_back`: those that have not started are wanted elsewhere."""
        self.closed, self.gives_back = True, gives_back
        for each in list(self.on_close):
            each()
