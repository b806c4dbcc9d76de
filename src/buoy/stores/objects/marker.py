"""Marker: the object that says that a place of a bucket is a Buoy store, and of which format.

Invariants: a place that holds something else is never made a store. Before this Buoy writes to a store of an earlier
format, it marks the store as one of its own. It refuses while a runner of the earlier Buoy beats. From then on the
earlier Buoy refuses to open the store: the two know other indexes, and must not work on one bucket. Reading alone
changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from buoy.core.ids import RunnerId
from buoy.core.limits import LOOKS_APART_S
from buoy.errors import StoreUnusable
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.probe import PROBE, PROBED

# 1: without `parked/`, segments and the heartbeat in `living/`. 2: `index/` lists every run, not only those that ended.
FORMAT = 3


class Marker(msgspec.Struct, frozen=True):
    """Says that a bucket is a Buoy store, and of which format."""

    format: int


async def mark(bucket: Bucket) -> bool:
    """Makes an empty bucket a store; refuses what is none, and what a newer Buoy made.

    True if an earlier Buoy made it: then an `Upgrade` comes before the first write.
    """
    found = await bucket.get(layout.MARKER)
    if found is None:
        await refuse_foreign(bucket)
        with suppress(Exists):
            await bucket.create(layout.MARKER, msgspec.json.encode(Marker(FORMAT)))
        found = await bucket.get(layout.MARKER)
    return _format(bucket, found) < FORMAT


class Upgrade:
    """Marks a store of an earlier format as one of this format, before the first write.

    `beats` gives the last beat of each living runner. Two looks at them, as for a proof of death: a runner that was
    killed has left an entry, and must not hold up this Buoy for good.
    """

    def __init__(self, bucket: Bucket, beats: Callable[[], Awaitable[dict[RunnerId, int]]], *, due: bool) -> None:
        self._bucket = bucket
        self._beats = beats
        self._due = due
        self.on_marked: Callable[[], None] = lambda: None

    async def done(self) -> None:
        """Refuses while a runner of the earlier Buoy beats."""
        if self._due:
            await self._mark()
            self._due = False
            self.on_marked()

    async def _mark(self) -> None:
        if await self._outdated() is None:
            return  # another process of this Buoy has done it
        before = await self._beats()
        if before:
            await _pause()
        now = await self._beats() if before else {}
        # Again after the looks: a runner of this Buoy marks the store before it registers.
        found = await self._outdated()
        if found is None:
            return
        alive = ", ".join(sorted(runner for runner, number in now.items() if before.get(runner) != number))
        if alive:
            name = self._bucket.name
            raise StoreUnusable(f"{name} is in use by workers of an earlier Buoy: {alive}; stop them, and try again")
        with suppress(Changed):
            await self._bucket.replace(layout.MARKER, msgspec.json.encode(Marker(FORMAT)), found[1])

    async def _outdated(self) -> tuple[bytes, str] | None:
        """The marker, if it is one of an earlier format."""
        found = await self._bucket.get(layout.MARKER)
        return None if found is None or _format(self._bucket, found) == FORMAT else found


async def _pause() -> None:
    await asyncio.sleep(LOOKS_APART_S)


def _format(bucket: Bucket, found: tuple[bytes, str] | None) -> int:
    try:
        made = msgspec.json.decode(b"" if found is None else found[0], type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreUnusable(f"{bucket.name}/{layout.MARKER} cannot be read: {error}; restore it") from error
    if made.format > FORMAT:
        raise StoreUnusable(
            f"{bucket.name} has format {made.format}, this Buoy knows {FORMAT}: a newer Buoy wrote it; upgrade this one"
        )
    return made.format


async def refuse_foreign(bucket: Bucket) -> None:
    """Raises if the place holds something and is no store."""
    # A probe that was cut short may have left something.
    holds = [key for key in await bucket.list("", limit=100) if not key.startswith((PROBE, PROBED))]
    if (holds or await bucket.foreign("")) and await bucket.get(layout.MARKER) is None:
        raise StoreUnusable(f"{bucket.name} holds other things and is no Buoy store; name an empty place or a store")
