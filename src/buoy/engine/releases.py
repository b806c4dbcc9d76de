"""Releases: gives tasks back to the store, however long the store stays away.

Why apart: an execution is detached before its task is given back, so a release that failed and was forgotten would
leave a run that its runner holds and nobody drives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from buoy.core.ids import RunId, RunnerId
from buoy.ports import Ended, Released, Store

_PAUSE_S = 0.5
_CLOSE_TRIES = 20


class Giving(NamedTuple):
    """A task to give back. `head_seq`: the end of the log that the giver knew; None if it knew none."""

    run_id: RunId
    change: Released | Ended
    head_seq: int | None


class Releases:
    """A queue of releases, worked off one by one."""

    def __init__(self, store: Store, runner: RunnerId, refused: Callable[[], None]) -> None:
        self._store = store
        self._runner = runner
        self._on_refused = refused
        self._queue: deque[Giving] = deque()
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._closing = False
        self._trying: asyncio.Future[None] | None = None
        self.errors = 0
        self.last_error: str | None = None

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work(), name="buoy-releases")

    def add(self, run_id: RunId, change: Released | Ended, head_seq: int | None = None) -> None:
        self._queue.append(Giving(run_id, change, head_seq))
        self._wake.set()

    def __contains__(self, run_id: RunId) -> bool:
        """Whether this run is about to be given back."""
        return any(run_id == each.run_id for each in self._queue)

    async def forget(self, run_id: RunId) -> bool:
        """The run was claimed anew: an older release must not be tried again. Whether there was one."""
        found = run_id in self
        while run_id in self:
            if self._trying is not None and self._queue[0].run_id == run_id:
                await asyncio.shield(self._trying)
            self._queue = deque(each for each in self._queue if each.run_id != run_id)
        return found

    async def close(self, *, at_once: bool = False) -> None:
        """Works off what is left; gives up after a while, since the runner's death then releases it all."""
        self._closing = True
        self._wake.set()
        if self._worker is not None and at_once:
            self._worker.cancel()
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self) -> None:
        tries = 0
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            giving = self._queue[0]
            self._trying = asyncio.get_running_loop().create_future()
            try:
                if not await self._store.release(giving.run_id, self._runner, giving.change, giving.head_seq):
                    self._on_refused()
                self._drop(giving)
            except Exception as error:  # noqa: BLE001 - a loop that ends in silence is the worst way to fail
                self.errors += 1
                self.last_error = f"{type(error).__name__}: {error}"
                tries += 1
            finally:
                self._trying.set_result(None)
                self._trying = None
            if not self._queue or self._queue[0] is not giving:
                continue
            if self._closing and tries > _CLOSE_TRIES:
                return
            await asyncio.sleep(_PAUSE_S)

    def _drop(self, giving: Giving) -> None:
        if self._queue and self._queue[0] is giving:
            self._queue.popleft()
