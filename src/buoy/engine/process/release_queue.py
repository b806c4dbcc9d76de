"""Releases: gives tasks back to the store, however long the store is unavailable.

Why this is a queue: an execution is detached before its task is given back. If a release failed and was forgotten, its
runner would hold the run and never drive it.
Invariants: at most one release per run is tried at a time. A release that fails goes behind the others and is tried
again later, so it delays no other run's release.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from buoy.core import limits
from buoy.core.ids import RunId, RunnerId
from buoy.ports.records import Ended, Released
from buoy.ports.store import Store

_PAUSE_S = 0.5
# At the runner's end: how often each release that is left is tried before the runner's own end has to release it.
_CLOSE_TRIES = 20


class Giving(NamedTuple):
    """A task to give back. `head_seq`: the end of the log that the giver knew; None if it knew none."""

    run_id: RunId
    change: Released | Ended
    head_seq: int | None


class ReleaseQueue:
    """A queue of releases, worked off one by one."""

    def __init__(self, store: Store, runner: RunnerId, refused: Callable[[], None]) -> None:
        self._store = store
        self._runner = runner
        self._on_refused = refused
        self._queue: deque[Giving] = deque()
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._closing = False
        self._trying: tuple[RunId, asyncio.Future[None]] | None = None
        # Tries that have come to an end, whatever it was.
        self._answered = 0
        self.errors = 0
        self.last_error: str | None = None

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work(), name="buoy-releases")

    def add(self, run_id: RunId, change: Released | Ended, head_seq: int | None = None) -> None:
        self._queue.append(Giving(run_id, change, head_seq))
        self._wake.set()

    def __contains__(self, run_id: RunId) -> bool:
        """Whether this run is about to be given back."""
        trying = self._trying is not None and self._trying[0] == run_id
        return trying or any(run_id == each.run_id for each in self._queue)

    async def forget(self, run_id: RunId) -> bool:
        """Drops an older release of a run that was claimed again. Returns whether there was one."""
        found = run_id in self
        while run_id in self:
            if self._trying is not None and self._trying[0] == run_id:
                await asyncio.shield(self._trying[1])
            self._queue = deque(each for each in self._queue if each.run_id != run_id)
        return found

    async def close(self, *, at_once: bool = False) -> None:
        """Performs the releases that are left. Gives up after a while: the runner's death then releases them."""
        self._closing = True
        self._wake.set()
        if self._worker is not None and at_once:
            self._worker.cancel()
        answered = -1
        while self._worker is not None and not self._worker.done():
            if answered == self._answered:
                self._worker.cancel()  # a release hangs, and the others would, too
            answered = self._answered
            await asyncio.wait([self._worker], timeout=limits.STOP_ANSWER_S)

    async def _work(self) -> None:
        failed = rounds = 0  # failures in a row; rounds in which all that is left failed, while closing
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            giving = self._queue[0]
            given = await self._give(giving)
            if self._queue and self._queue[0] is giving:
                self._queue.popleft()
                if not given:
                    self._queue.append(giving)
            failed = 0 if given else failed + 1
            if failed and failed >= len(self._queue):
                failed = 0
                rounds += self._closing
                if rounds > _CLOSE_TRIES:
                    return
                await asyncio.sleep(_PAUSE_S)

    async def _give(self, giving: Giving) -> bool:
        """Whether the store has answered, with success or refusal."""
        trying = asyncio.get_running_loop().create_future()
        self._trying = (giving.run_id, trying)
        try:
            if not await self._store.release(giving.run_id, self._runner, giving.change, giving.head_seq):
                self._on_refused()
            return True
        except Exception as error:  # noqa: BLE001 - counted and shown; the release is tried again
            self.errors += 1
            self.last_error = f"{type(error).__name__}: {error}"
            return False
        finally:
            self._answered += 1
            self._trying = None
            trying.set_result(None)
