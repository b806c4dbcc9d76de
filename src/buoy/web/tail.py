"""Tail: the end of one watched log, and the readers that wait for it to grow.

Invariants: a reader gets every event after its number, in order, once. A reader that waits may be written to at once,
without waking its task: 1,000 tasks for one event cost more than 1,000 writes. Only a reader that has had all that
came before is written to. Any other one is woken, and takes what it misses by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.ports.records import Progress

# So many events of a run stay at hand for its readers.
KEPT_MAX = 1_000
# So many readers are written to before other work of the loop has its turn.
READERS_AT_ONCE = 250


class Frame(NamedTuple):
    """One message about a run, encoded once for all readers. `ends`: no later event of this run is expected.

    `seq`: the number of its event. 0: it is no event, but the latest progress of a step.
    """

    seq: int
    name: str
    data: bytes
    ends: bool


# Writes frames to a reader at once; no frames: only that the server is still there. False: the reader is slow.
Take = Callable[[list[Frame]], bool]


def frame_of(event: e.Event) -> Frame:
    return Frame(event.seq, event.type, msgspec.json.encode(event), isinstance(event.body, e.ENDINGS))


def progress_frame(progress: Progress) -> Frame:
    return Frame(0, "progress", msgspec.json.encode(progress), ends=False)


class Waiter:
    """A reader that waits. `after`: the last number that it has; `shown`: the last progress; `ended`: it has all."""

    __slots__ = ("after", "ended", "pulsed", "shown", "take", "woken")

    def __init__(self, after: int, shown: Progress | None, take: Take | None) -> None:
        self.after = after
        self.shown = shown
        self.take = take
        self.ended = False
        # Woken because nothing happened for a while.
        self.pulsed = False
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(self, frames: list[Frame]) -> bool:
        """Writes to the reader at once. False: it has no such way, is slow, or is about to look by itself."""
        return self.take is not None and not self.woken.done() and self.take(frames)

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Tail:
    """The end of one watched log, and the latest progress of the run's steps."""

    def __init__(self, run_id: RunId, now: float) -> None:
        self.run_id = run_id
        self.readers = 0
        self.kept: deque[Frame] = deque(maxlen=KEPT_MAX)
        self.head: int | None = None
        self.looked_at = now
        self.quiet = False
        self.progress: Progress | None = None
        self._waiting: dict[Waiter, None] = {}

    def after(self, seq: int) -> list[Frame] | None:
        """The kept frames after that number; None: some of them are no longer kept."""
        if self.head is None or seq >= self.head:
            return []
        first = self.kept[0].seq if self.kept else self.head + 1
        if seq + 1 < first:
            return None
        return list(islice(self.kept, seq + 1 - first, None))

    async def wait(self, waiter: Waiter) -> None:
        """Until the reader is to look by itself. It may have been written to before that."""
        self._waiting[waiter] = None
        try:
            await waiter.woken
        finally:
            self._waiting.pop(waiter, None)

    async def add(self, frames: list[Frame]) -> None:
        """The next events of the log, for all readers."""
        self.kept.extend(frames)
        self.head, self.quiet = frames[-1].seq, False
        before, ends = frames[0].seq - 1, any(frame.ends for frame in frames)
        for place, waiter in enumerate(list(self._waiting), 1):
            written = waiter.after == before and waiter.written(frames)
            if written:
                waiter.after, waiter.ended = frames[-1].seq, ends
            if ends or not written:
                waiter.wake()
            if not place % READERS_AT_ONCE:
                await asyncio.sleep(0)

    async def show(self, progress: Progress) -> None:
        """The latest progress, for all readers."""
        self.progress, self.quiet = progress, False
        frames = [progress_frame(progress)]
        for waiter in list(self._waiting):
            if waiter.written(frames):
                waiter.shown = progress
            else:
                waiter.wake()

    async def pulse(self) -> None:
        """Says that the server is still there, if nothing else was said since the last time."""
        if self.quiet:
            for place, waiter in enumerate(list(self._waiting), 1):
                if not waiter.written([]):
                    waiter.pulsed = True
                    waiter.wake()
                if not place % READERS_AT_ONCE:
                    await asyncio.sleep(0)
        self.quiet = True

    def wake_all(self) -> None:
        for waiter in self._waiting:
            waiter.wake()
