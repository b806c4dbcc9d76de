"""Memory bucket: the semantics of a bucket without a disk, for the simulator and for users' tests.

Several buckets on one `MemoryData` are several processes on one storage. `on_call` is awaited before and after each
operation: raising there before it means that the operation did not happen, after it that its answer was lost.
Only the hook yields to the event loop, so that the simulator decides about every interleaving.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from buoy.errors import Unavailable
from buoy.ports.maintenance import Refusal
from buoy.stores.objects.bucket import Changed, Exists, check_key

# (operation, key or prefix, "before" or "after")
OnCall: TypeAlias = Callable[[str, str, str], Awaitable[None]]


class MemoryData:
    """What the buckets share: each body with the number of the write that made it."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.keys: list[str] = []
        self.writes = 0

    def put(self, key: str, data: bytes) -> str:
        self.writes += 1
        if key not in self.objects:
            insort(self.keys, key)
        etag = f"{self.writes}"
        self.objects[key] = (data, etag)
        return etag

    def remove(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class MemoryBucket:
    """One process's way to the shared data."""

    def __init__(self, data: MemoryData | None = None, on_call: OnCall | None = None, name: str = "memory") -> None:
        self.data = MemoryData() if data is None else data
        self.on_call = on_call
        self._name = name
        self._closed = False

    @property
    def name(self) -> str:
        return f"memory:///{self._name}"

    async def reopen(self) -> MemoryBucket:
        return MemoryBucket(self.data, self.on_call, self._name)

    async def create(self, key: str, data: bytes) -> str:
        await self._call("create", check_key(key), "before")
        if key in self.data.objects:
            raise Exists(key)
        etag = self.data.put(key, data)
        await self._call("create", key, "after")
        return etag

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        await self._call("replace", check_key(key), "before")
        found = self.data.objects.get(key)
        if found is None or found[1] != etag:
            raise Changed(key)
        new_etag = self.data.put(key, data)
        await self._call("replace", key, "after")
        return new_etag

    async def get(self, key: str) -> tuple[bytes, str] | None:
        await self._call("get", check_key(key), "before")
        found = self.data.objects.get(key)
        await self._call("get", key, "after")
        return found

    async def put(self, key: str, data: bytes) -> str:
        await self._call("put", check_key(key), "before")
        etag = self.data.put(key, data)
        await self._call("put", key, "after")
        return etag

    async def get_unless(self, key: str, etag: str) -> tuple[bytes, str] | None:
        found = await self.get(key)
        return None if found is None or found[1] == etag else found

    async def foreign(self, prefix: str) -> list[str]:
        """None: nothing else can write here."""
        return []

    async def list_etags(
        self, prefix: str, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, str]]:
        await self._call("list", prefix, "before")
        keys = self.data.keys
        place = bisect_left(keys, prefix)
        if after is not None:
            place = max(place, bisect_right(keys, after))
        found: list[tuple[str, str]] = []
        while place < len(keys) and keys[place].startswith(prefix) and (limit is None or len(found) < limit):
            found.append((keys[place], self.data.objects[keys[place]][1]))
            place += 1
        await self._call("list", prefix, "after")
        return found

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        return [key for key, _ in await self.list_etags(prefix, after, limit)]

    async def delete(self, key: str) -> None:
        await self._call("delete", check_key(key), "before")
        self.data.remove(key)
        await self._call("delete", key, "after")

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.delete(key)

    def pulse(self) -> int | None:
        return self.data.writes

    def durability(self) -> str | None:
        return "it is kept in memory only"

    async def refusal(self) -> Refusal | None:
        return None

    async def close(self) -> None:
        self._closed = True

    async def _call(self, operation: str, key: str, phase: str) -> None:
        if self._closed:
            raise Unavailable(f"the bucket {self.name} was closed; open it again")
        if self.on_call is not None:
            await self.on_call(operation, key, phase)
