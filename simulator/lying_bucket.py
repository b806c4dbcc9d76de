"""Lying bucket: a bucket in memory whose answers are as odd as those of real servers.

A write may arrive after its sender gave it up: a request that timed out is not undone. An error may come after the
write was taken in, or before; a refusal may come from the write's own first sending; a conflict may leave the place
free; a long listing shows its parts as of different times. What the adapter of S3 makes of an answer is what comes out
here: a server that asks to slow down gets the same request again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from buoy.errors import Unavailable
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Changed, Exists
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData, OnCall
from simulator.faults import Gate

CONFLICT = "409, nothing taken in"
FAILED = "500, nothing taken in"
TAKEN = "500, though taken in"
SLOW_DOWN = "503, then taken in"
TWICE = "503, though taken in: the second sending is refused"
LISTS_SLOWLY = "slow listing"
LIES = (CONFLICT, FAILED, TAKEN, SLOW_DOWN, TWICE, LISTS_SLOWLY)

_WRITES = (CONFLICT, FAILED, TAKEN, SLOW_DOWN, TWICE)
_HINTS = (FAILED, TAKEN, SLOW_DOWN)
_PAUSE_S = 2.0


class LyingBucket(MemoryBucket):
    """One simulated process's way to the shared objects."""

    def __init__(self, data: MemoryData, on_call: OnCall, gate: Gate, *, metered: bool) -> None:
        super().__init__(data, on_call)
        self._gate = gate
        self._metered = metered

    def pulse(self) -> int | None:
        """None as S3 has it: what others did shows by the poke alone."""
        return None if self._metered else super().pulse()

    async def put(self, key: str, data: bytes) -> str:
        self._perhaps_late(f"put {key}", lambda: self.data.put(key, data), lambda: True)
        return await self._perhaps_lie(f"put {key}", _HINTS, lambda: super(LyingBucket, self).put(key, data))

    async def create(self, key: str, data: bytes) -> str:
        what = f"create {key}"
        self._perhaps_late(what, lambda: self.data.put(key, data), lambda: key not in self.data.objects)
        # A commit reads back by itself. For other objects the adapter looks, finds no object, and calls it unclear.
        conflict = Exists(key) if "/log/" in key and key.startswith(layout.WORKFLOW) else None
        return await self._perhaps_lie(
            what, _WRITES, lambda: super(LyingBucket, self).create(key, data), conflict, Exists(key)
        )

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        def same() -> bool:
            return self.data.objects.get(key, (b"", ""))[1] == etag

        what = f"replace {key}"
        self._perhaps_late(what, lambda: self.data.put(key, data), same)
        return await self._perhaps_lie(
            what, _WRITES, lambda: super(LyingBucket, self).replace(key, data, etag), None, Changed(key)
        )

    async def list_etags(
        self, prefix: str, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, str]]:
        found = await super().list_etags(prefix, after, limit)
        if len(found) < 2 or self._gate.lie(f"list {prefix}", (LISTS_SLOWLY,)) is None:
            return found
        # The second page is as of a later time than the first.
        half = found[: len(found) // 2]
        await asyncio.sleep(_PAUSE_S)
        rest = None if limit is None else limit - len(half)
        return half + await super().list_etags(prefix, half[-1][0], rest)

    async def _perhaps_lie(
        self,
        what: str,
        lies: tuple[str, ...],
        write: Callable[[], Awaitable[str]],
        conflict: Exception | None = None,
        refused: Exception | None = None,
    ) -> str:
        """The answer to this write. `refused`: what a second sending of it gets."""
        lie = self._gate.lie(what, lies)
        if lie in (CONFLICT, FAILED):
            raise conflict if lie == CONFLICT and conflict is not None else Unavailable(f"{lie}: {what}")
        if lie == SLOW_DOWN:
            await asyncio.sleep(_PAUSE_S / 10)
        etag = await write()
        if lie == TAKEN:
            raise Unavailable(f"{lie}: {what}")
        if lie == TWICE and refused is not None:
            raise refused
        return etag

    def _perhaps_late(self, what: str, write: Callable[[], object], allowed: Callable[[], bool]) -> None:
        late_s = self._gate.late_s(what)
        if late_s is None:
            return

        def arrive() -> None:
            if allowed():
                write()

        self._gate.kernel.at(self._gate.kernel.time + late_s, arrive)
        raise Unavailable(f"no answer to {what}")
