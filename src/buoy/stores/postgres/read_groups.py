"""Read groups: reads of one kind that wait at the same time become one statement.

A runner that takes over a thousand runs reads a thousand logs. One round trip each would take longer than all the rest.
Invariants: a read begins after it was asked for, so its answer is as new as that of a statement of its own. One kind
has one statement under way per event loop. A read that comes later joins the next one. An error about one key
reaches its caller only; an error of the statement reaches all callers of the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from buoy.stores.postgres.connection import Connection

K = TypeVar("K")
V = TypeVar("V")
# One answer per key, in their order. An answer that is an error is raised to its caller.
ReadMany: TypeAlias = Callable[[Connection, Sequence[K]], Sequence[V | Exception]]
Read: TypeAlias = Callable[[Callable[[Connection], Any]], Awaitable[Any]]

# Bounds the size of one answer, and how long other reads wait behind it.
GROUP_MAX = 64


def only(found: Sequence[V | Exception]) -> V:
    """The answer for the one key that was asked for."""
    (answer,) = found
    if isinstance(answer, Exception):
        raise answer
    return answer


class ReadGroups:
    """Collects the keys of each kind of read, and reads them in groups."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._kinds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ReadMany[Any, Any], _Kind]] = WeakKeyDictionary()

    async def get(self, many: ReadMany[K, V], key: K) -> V:
        """The answer for one key. `many` reads several, and its identity is the kind of read."""
        kinds = self._kinds.setdefault(asyncio.get_running_loop(), {})
        kind = kinds.get(many)
        if kind is None:
            kind = kinds[many] = _Kind(self._read, many)
        found: V = await kind.ask(key)
        return found


class _Kind:
    """The reads of one kind, on one event loop."""

    def __init__(self, read: Read, many: ReadMany[Any, Any]) -> None:
        self._read = read
        self._many = many
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._reading: asyncio.Task[None] | None = None

    def ask(self, key: object) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((key, answer))
        if self._reading is None:
            # A task begins in the next turn of the loop: until then the group gathers its members.
            self._reading = loop.create_task(self._read_all(), name="buoy-read-group")
        return answer

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                # A caller that was cancelled needs no answer.
                await self._read_group([each for each in group if not each[1].done()])
        finally:
            self._reading = None
            for _, answer in self._waiting:
                answer.cancel()
            self._waiting = []

    async def _read_group(self, group: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        if not group:
            return
        keys = [key for key, _ in group]
        try:
            found = await self._read(lambda connection: self._many(connection, keys))
        except asyncio.CancelledError:
            for _, answer in group:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is the callers', who wait for it
            found = [error] * len(group)
        for (_, answer), value in zip(group, found, strict=True):
            if answer.done():
                continue
            if isinstance(value, Exception):
                answer.set_exception(value)
            else:
                answer.set_result(value)
