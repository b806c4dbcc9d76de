"""Numbered records in objects: one object each, and every change raises the number by one.

Invariants: of two savers of one number exactly one wins, by create-if-absent or compare-and-swap. After a lost answer
or a refusal the saver reads the object back before it concludes anything (law 2). The number makes every body its own.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from buoy.errors import Unavailable
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.unreadable import decoded


class Numbered(Protocol):
    @property
    def number(self) -> int: ...


R = TypeVar("R", bound=Numbered)


class NumberedObjects(Generic[R]):
    """Reads and saves the numbered records of one type."""

    def __init__(self, bucket: Bucket, type: type[R]) -> None:
        self._bucket = bucket
        self._decode = msgspec.json.Decoder(type).decode

    async def get(self, key: str) -> R | None:
        found = await self._get(key)
        return None if found is None else found[0]

    async def save(self, key: str, record: R) -> bool:
        """Whether this record stands now: False if another saver had its number first."""
        data = msgspec.json.encode(record)
        there = await self._get(key)
        if (0 if there is None else there[0].number) != record.number - 1:
            return False
        try:
            await (self._bucket.create(key, data) if there is None else self._bucket.replace(key, data, there[1]))
        except (Exists, Changed):
            # A write that was sent twice on its way gets the refusal of the second sending.
            return await self.get(key) == record
        except Unavailable:
            now = await self.get(key)
            if now is None or now.number < record.number:
                raise
            return now == record
        return True

    async def _get(self, key: str) -> tuple[R, str] | None:
        found = await self._bucket.get(key)
        return None if found is None else (decoded(self._decode, found[0], key), found[1])
