"""Turns: lets the writers of one process that want the same place come one after the other.

A hundred senders that race for the next number of one inbox would each read what the others put there: ten thousand
reads for a hundred messages. In turn, each finds the next number free. Other processes race anyway; create-if-
absent decides between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """One lock per place, for as long as it is wanted. Each event loop has its own."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, place: Hashable) -> AsyncIterator[None]:
        """The turn of the caller at this place."""
        key = (asyncio.get_running_loop(), place)
        lock, wanted = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._locks.pop(key)
            if wanted > 1:
                self._locks[key] = (lock, wanted - 1)
