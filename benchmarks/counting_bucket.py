"""Counting bucket: any bucket, with its requests counted as S3 bills them.

A listing is one request per 1,000 keys. Both kinds of write are a PUT, and an attempt counts, whether it succeeds or
not. The wrapper has no pulse, as S3 has none. While a request is under way, skipped time waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from buoy.ports.maintenance import Refusal
from buoy.stores.objects.bucket import Bucket
from buoy.testing.skipping import Outside

LISTED_MAX = 1_000


class Requests(NamedTuple):
    """Numbers of requests by kind."""

    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0

    def __sub__(self, other: Requests) -> Requests:
        return Requests(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class Meter:
    """The requests of all buckets of one storage, so far. `trace`: each of them, for a person who wonders."""

    def __init__(self) -> None:
        self.total = Requests()
        self.trace: list[tuple[str, str]] = []
        self.outside = Outside()

    def add(self, kind: str, key: str, number: int = 1) -> None:
        self.total = self.total._replace(**{kind: getattr(self.total, kind) + number})
        self.trace.append((kind, key))

    @contextmanager
    def request(self, kind: str, key: str) -> Iterator[None]:
        self.add(kind, key)
        with self.outside.job():
            yield


class CountingBucket:
    """One process's way to the storage, counted by the meter that all of them share."""

    def __init__(self, inner: Bucket, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    @property
    def name(self) -> str:
        return self._inner.name

    async def create(self, key: str, data: bytes) -> str:
        with self._meter.request("put", key):
            return await self._inner.create(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        with self._meter.request("put", key):
            return await self._inner.replace(key, data, etag)

    async def get(self, key: str) -> tuple[bytes, str] | None:
        with self._meter.request("get", key):
            return await self._inner.get(key)

    async def put(self, key: str, data: bytes) -> str:
        with self._meter.request("put", key):
            return await self._inner.put(key, data)

    async def get_unless(self, key: str, etag: str) -> tuple[bytes, str] | None:
        with self._meter.request("get", key):
            return await self._inner.get_unless(key, etag)

    async def list_etags(
        self, prefix: str, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, str]]:
        with self._meter.request("list", prefix):
            found = await self._inner.list_etags(prefix, after, limit)
        more = (len(found) - 1) // LISTED_MAX
        if more > 0:
            self._meter.add("list", prefix, more)
        return found

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        return [key for key, _ in await self.list_etags(prefix, after, limit)]

    async def delete(self, key: str) -> None:
        with self._meter.request("delete", key):
            await self._inner.delete(key)

    async def delete_many(self, keys: Sequence[str]) -> None:
        with self._meter.request("delete", keys[0] if keys else ""):
            await self._inner.delete_many(keys)
        if len(keys) > LISTED_MAX:
            self._meter.add("delete", keys[0], (len(keys) - 1) // LISTED_MAX)

    async def foreign(self, prefix: str) -> list[str]:
        with self._meter.request("list", prefix):
            return await self._inner.foreign(prefix)

    def pulse(self) -> int | None:
        return None

    def durability(self) -> str | None:
        return self._inner.durability()

    async def refusal(self) -> Refusal | None:
        return await self._inner.refusal()

    async def reopen(self) -> CountingBucket:
        return CountingBucket(await self._inner.reopen(), self._meter)

    async def close(self) -> None:
        await self._inner.close()
