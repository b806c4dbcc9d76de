"""Index: entries of the object store that only help to find things. The objects that they point at are the truth.

Law 3: an entry is written before its truth and removed after it. Every process that meets an entry which the truth has
passed removes it. An entry whose truth is positively absent may be new, with its writer still on the way. It is removed
only if the same observer saw it so twice, long apart; a writer that was held up first writes its entry again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, TypeVar

from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.host import Clock
from buoy.stores.objects.bucket import Bucket, Exists

T = TypeVar("T")
R = TypeVar("R")
Entry: TypeAlias = tuple[str, bytes]

# Two looks this far apart prove that no writer is about to write the truth...
REAP_AFTER_S = 15 * 60.0
# ...since a writer that finds itself this late writes its entry again.
LATE_AFTER_S = 60.0
# Doubtful entries that are remembered between two looks; others are met again.
DOUBTS_MAX = 10_000
# Requests under way at once for one call of the store.
WIDTH = 32
# Entries that wait to be removed together. More would make other processes meet many that the truth has passed.
GATHERED_MAX = 64


class Index:
    """Adds, removes and reaps index entries."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._doubts: dict[str, float] = {}
        self._undone: list[str] = []
        self._gathering = 0
        # What could not be tidied up after a commit. Another process will meet it; `buoy status` shows the number.
        self.leftovers = 0
        self.last_error: str | None = None

    async def add(self, entries: Sequence[Entry]) -> float:
        """Writes the entries, and gives the time from which they count as fresh."""
        began = self._clock.monotonic()
        await each(entries, self._add)
        return began

    async def refresh(self, entries: Sequence[Entry], since: float) -> None:
        """To be called right before the truth is written: a late writer's entries may have been reaped."""
        while entries and self._clock.monotonic() - since > LATE_AFTER_S:
            since = await self.add(entries)

    async def drop(self, keys: Iterable[str | None]) -> None:
        """Removes entries that the truth has passed. What fails is only a leftover, and is tried again next time."""
        waiting = list(dict.fromkeys([*self._undone, *(key for key in keys if key is not None)]))
        if self._gathering and len(waiting) < GATHERED_MAX:
            self._undone = waiting
            return
        self._undone = []
        try:
            if len(waiting) == 1:
                await self._bucket.delete(waiting[0])
            elif waiting:
                await self._bucket.delete_many(waiting)
        except (Unavailable, StoreUnusable) as error:
            self.note(error)
            self._undone = [*self._undone, *waiting][-DOUBTS_MAX:]

    @asynccontextmanager
    async def gathered(self) -> AsyncIterator[None]:
        """Inside, entries are removed together: one request for many of them."""
        self._gathering += 1
        try:
            yield
        finally:
            self._gathering -= 1
            await self.drop([])

    async def doubt(self, key: str) -> None:
        """The truth of this entry is positively absent. Reaps it at the second such look, if that is late enough."""
        now = self._clock.monotonic()
        first = self._doubts.get(key)
        if first is None:
            if len(self._doubts) >= DOUBTS_MAX:
                self._doubts.clear()
            self._doubts[key] = now
        elif now - first >= REAP_AFTER_S:
            del self._doubts[key]
            await self.drop([key])

    def trust(self, key: str) -> None:
        """The truth of this entry is there after all."""
        self._doubts.pop(key, None)

    def note(self, error: Exception) -> None:
        self.leftovers += 1
        self.last_error = str(error)

    async def _add(self, entry: Entry) -> None:
        with suppress(Exists):
            await self._bucket.create(*entry)


async def each(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results of `work` for all items, a few at a time. All of them end before the first error is raised."""
    waiting = list(items)
    if len(waiting) == 1:
        return [await work(waiting[0])]
    done: dict[int, R] = {}
    failed: dict[int, BaseException] = {}
    places = iter(range(len(waiting)))

    async def lane() -> None:
        """The next item as soon as there is room: a slow one holds up no other."""
        while not failed and (place := next(places, None)) is not None:
            try:
                done[place] = await work(waiting[place])
            except BaseException as error:  # noqa: BLE001 - raised below, when the others have ended
                failed[place] = error

    await asyncio.gather(*(lane() for _ in range(min(WIDTH, len(waiting)))))
    if failed:
        raise failed[min(failed)]
    return [done[place] for place in range(len(waiting))]
