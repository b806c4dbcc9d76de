"""Change feed: wakes waiting tasks after a change. This process reports its own changes; another process's change shows
as a new data version of the file.

One timer per event loop looks every 50 ms (100 ms when all has been quiet), for any number of waiting tasks. It runs
only while a task waits. A look costs microseconds.
Changes between two waits are not missed: each waiting task remembers the last change that it received, and takes no
other task's hint. A task that waits for the first time receives all changes so far, because it read the store at some
unknown time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet

from buoy.errors import Problem
from buoy.ports.records import Released, Write

POLL_S = 0.05
QUIET_POLL_S = 0.1
# Looks without a change after which it is quiet: one second.
QUIET_LOOKS = 20


def wakes_others(write: Write) -> bool:
    """Whether a task may have come due by this."""
    return type(write.task) is Released or (write.after_seq == 0 and write.task is None)


class ChangeFeed:
    """The tasks that wait for a change, and the last change that each received."""

    def __init__(self, data_version: Callable[[], int | None]) -> None:
        self._data_version = data_version
        self._last_data_version = data_version()
        self._quiet_looks = 0
        # The number of changes, and the last number that each task received.
        self._count = 0
        self._delivered: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
        self._waiting: set[asyncio.Future[None]] = set()
        self._ticking: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    def notify(self) -> None:
        """This process changed something that others wait for. Callable from any thread."""
        self._count += 1
        self._quiet_looks = 0
        for waiter in tuple(self._waiting):
            waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    async def wait(self, timeout_s: float) -> bool:
        """True as soon as something may have changed since this task's last wait; False after that long."""
        self._look()
        task = asyncio.current_task()
        assert task is not None, "a coroutine that waits belongs to a task"
        if self._delivered.get(task, 0) == self._count and not await self._wait(timeout_s):
            return False
        self._delivered[task] = self._count
        return True

    async def _wait(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiter)
        if loop not in self._ticking:
            self._ticking.add(loop)
            loop.call_later(POLL_S, self._tick, loop)
        try:
            done, _ = await asyncio.wait((waiter,), timeout=timeout_s)
            if done:
                waiter.result()
            return bool(done)
        finally:
            self._waiting.discard(waiter)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        mine = [waiter for waiter in self._waiting if waiter.get_loop() is loop]
        if not mine:
            self._ticking.discard(loop)
            return
        loop.call_later(POLL_S if self._quiet_looks < QUIET_LOOKS else QUIET_POLL_S, self._tick, loop)
        try:
            self._look()
        except Problem as problem:
            for waiter in mine:
                if not waiter.done():
                    waiter.set_exception(problem)

    def _look(self) -> None:
        self._quiet_looks += 1
        found = self._data_version()
        if found is not None and found != self._last_data_version:
            self._last_data_version = found
            self.notify()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
