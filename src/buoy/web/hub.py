"""Hub: tails the logs of watched runs, each once, whatever the number of readers.

Invariants: a reader gets every event after the number that it names, in order, once. The feed of moved runs is a hint:
each tail also looks by itself from time to time. A reader holds no queue: it keeps its number, reads the tail, and
reads from the store what the tail no longer has. So a slow reader costs no memory and can miss nothing.
Absent on purpose: HTTP. `web/stream` turns frames into server-sent events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import NamedTuple, TypeVar

from buoy.core.ids import RunId
from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Progress, RunRecord
from buoy.ports.store import Store
from buoy.web.tail import Frame, Tail, Take, Waiter, frame_of, progress_frame

_LOG = logging.getLogger("buoy.web")
T = TypeVar("T")

# How often the feed is asked while a client watches: soon after a move, and when all has been quiet.
LOOK_S = 0.05
QUIET_LOOK_S = 0.5
_QUIET_LOOKS = 40
# How often progress of steps is looked for, unless the store asks for a slower pace.
PROGRESS_LOOK_S = 1.0
# A tail looks by itself after this long, since the feed may miss a move.
TAIL_LOOK_S = 5.0
# How often a reader of a quiet run hears that the server is still there. Proxies end what is silent for 30 s or more.
PULSE_S = 15.0
PAGE = 500
# So many runs have a latest summary for readers of all runs.
SUMMARIES_MAX = 10_000


class Summary(NamedTuple):
    """The latest state of a run. `number` grows with each summary of the hub."""

    number: int
    record: RunRecord


class Hub:
    """Follows the store's moves, once for each server, and only while a client watches."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tails: dict[RunId, Tail] = {}
        self._watchers = 0
        self._cursor: str | None = None
        self._number = 0
        self._summaries: dict[RunId, Summary] = {}
        self._summed_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pulse_task: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._progress_every_s = max(PROGRESS_LOOK_S, store.pace.fleet_s)
        self._progress_at = 0.0
        self.closing = asyncio.Event()

    @property
    def streams(self) -> int:
        return self._watchers + sum(tail.readers for tail in self._tails.values())

    def nudge(self) -> None:
        """A commit of this process: look now instead of after a while."""
        self._nudged.set()

    async def close(self) -> None:
        """Ends all streams."""
        self.closing.set()
        for tail in self._tails.values():
            tail.wake_all()
        self._summed_up.set()
        tasks = [each for each in (self._task, self._pulse_task) if each is not None]
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # ---- one run

    async def follow(self, run_id: RunId, after: int, take: Take | None = None) -> AsyncIterator[list[Frame]]:
        """Events after that number, in groups; an empty group from time to time: still there. Ends with the server.

        `take`: while the reader waits here, what comes is written by it, and not returned. If the run ends by what
        was written, this ends, too.
        """
        tail = self._tails.setdefault(run_id, Tail(run_id, self._clock.monotonic()))
        tail.readers += 1
        self._wake()
        shown: Progress | None = None
        try:
            while not self.closing.is_set():
                head = tail.head
                found = tail.after(after) if head is not None else None
                if found is None:
                    found = await self._read(tail, after)
                if found:
                    after = found[-1].seq
                    yield found
                    continue
                if tail.progress is not None and tail.progress != shown:
                    shown = tail.progress
                    yield [progress_frame(shown)]
                    continue
                if tail.head != head or self.closing.is_set():
                    continue  # it grew while the store was read
                waiter = Waiter(after, shown, take)
                await tail.wait(waiter)
                after, shown = waiter.after, waiter.shown
                if waiter.ended:
                    return
                if waiter.pulsed:
                    yield []
        finally:
            tail.readers -= 1
            if not tail.readers and self._tails.get(run_id) is tail:
                del self._tails[run_id]

    async def _read(self, tail: Tail, after: int) -> list[Frame]:
        """From the store: what the tail does not have, or its very end if no reader came before."""
        found = [frame_of(event) for event in await self._store.events(tail.run_id, after, PAGE)]
        if tail.head is None and len(found) < PAGE:
            tail.head = found[-1].seq if found else after
        return found

    # ---- all runs

    async def summaries(self) -> AsyncIterator[list[RunRecord]]:
        """The latest state of each run that moved from now on: of several moves between two looks only the last."""
        self._watchers += 1
        self._wake()
        seen = self._number
        try:
            while not self.closing.is_set():
                waiting = self._summed_up
                news = [each for each in self._summaries.values() if each.number > seen]
                if news:
                    seen = max(each.number for each in news)
                    yield [each.record for each in news]
                elif not await _within(waiting, PULSE_S):
                    yield []
        finally:
            self._watchers -= 1

    # ---- the look

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._cursor = None
            self._task = asyncio.get_running_loop().create_task(self._work(), name="buoy-web-hub")
        if self._pulse_task is None or self._pulse_task.done():
            self._pulse_task = asyncio.get_running_loop().create_task(self._pulse(), name="buoy-web-pulse")

    async def _pulse(self) -> None:
        """Wakes the readers of quiet runs from time to time. One timer for all: 1,000 timers cost more."""
        while self.streams and not await _within(self.closing, PULSE_S):
            for tail in list(self._tails.values()):
                await tail.pulse()

    async def _work(self) -> None:
        quiet = 0
        while self.streams and not self.closing.is_set():
            try:
                quiet = 0 if await self._look() else quiet + 1
            except Exception as error:  # noqa: BLE001 - reported; without this task no stream would move again
                _LOG.warning("live streams: the store cannot be read now: %s", error)
                quiet = _QUIET_LOOKS
            if await _within(self._nudged, LOOK_S if quiet < _QUIET_LOOKS else QUIET_LOOK_S):
                self._nudged.clear()
                quiet = 0

    async def _look(self) -> bool:
        """Whether anything moved."""
        moved, self._cursor = await self._store.moved(self._cursor)
        now = self._clock.monotonic()
        due = [tail for run, tail in self._tails.items() if run in moved or now - tail.looked_at >= TAIL_LOOK_S]
        for tail in due:
            await _apart(tail.run_id, self._extend(tail, now))
        if self._watchers and moved:
            await self._sum_up(moved)
        if self._tails and now - self._progress_at >= self._progress_every_s:
            self._progress_at = now
            await self._look_at_progress()
        return bool(moved)

    async def _look_at_progress(self) -> None:
        """Progress travels with the heartbeats of runners: one look serves all watched runs."""
        for runner in await self._store.runners(glance=True):
            for run_id, progress in runner.beat.progress.items():
                tail = self._tails.get(run_id)
                if tail is not None and progress != tail.progress:
                    await tail.show(progress)

    async def _extend(self, tail: Tail, now: float) -> None:
        tail.looked_at = now
        if tail.head is None:
            return
        while found := await self._store.events(tail.run_id, tail.head, PAGE):
            await tail.add([frame_of(event) for event in found])
            if len(found) < PAGE:
                return

    async def _sum_up(self, moved: list[RunId]) -> None:
        for run_id in moved:
            record = await _apart(run_id, self._store.run(run_id))
            if record is not None:
                self._number += 1
                self._summaries.pop(run_id, None)
                self._summaries[run_id] = Summary(self._number, record)
        while len(self._summaries) > SUMMARIES_MAX:
            del self._summaries[next(iter(self._summaries))]
        waiting, self._summed_up = self._summed_up, asyncio.Event()
        waiting.set()


async def _apart(run_id: RunId, look: Awaitable[T]) -> T | None:
    """A look at one run. The log names one that cannot be read; the others are still read."""
    try:
        return await look
    except Unavailable:
        raise  # the store is away, for every run
    except Exception as error:  # noqa: BLE001 - reported
        _LOG.warning("live streams: run %s cannot be read: %s: %s", run_id, type(error).__name__, error)
        return None


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
