"""Polling: the loops of a runner that look at the store, and the one listener that wakes them.

Invariants: a change that comes while a loop looks makes it look again; no loop takes another one's wake-up. If a look
fails, the loop notes the error and continues after a pause. A lost store ends the runner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from buoy.engine.services.troubles import Troubles
from buoy.errors import Problem, StoreLost, Unavailable
from buoy.ports.host import Clock
from buoy.ports.store import Store

# Without a hint, each loop looks this often.
POLL_S = 1.0
_PAUSE_AFTER_ERROR_S = 0.5


class Watchman(Protocol):
    """The runner, as its loops see it."""

    store: Store
    clock: Clock
    gone: str | None
    trouble_log: Troubles

    def declared_gone(self, why: str) -> None: ...

    def note(self, text: str, error: Exception | None = None) -> None: ...


class PollLoop:
    """A loop that looks, and looks again once it is woken. `look` says whether to look again at once."""

    def __init__(self, runner: Watchman, name: str, look: Callable[[], Awaitable[bool]]) -> None:
        self._runner = runner
        self._name = name
        self._look = look
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._away = False
        self.stopping = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"buoy-{self._name}")

    def wake(self) -> None:
        """Looks again: now, or after the look that is under way."""
        self._woken.set()

    async def stop(self, patience_s: float) -> None:
        """Ends after the look that is under way, or after that time in the middle of it."""
        self.stopping = True
        self._woken.set()
        if self._task is not None:
            if patience_s > 0.0:
                await asyncio.wait([self._task], timeout=patience_s)
            self._task.cancel()

    async def _work(self) -> None:
        while self._runner.gone is None and not self.stopping:
            self._woken.clear()
            try:
                again = await self._look()
                if self._away:
                    self._away = False
                    self._runner.trouble_log.over(f"{self._runner.store.name} answers again")
                if not again and not self.stopping:
                    await self._woken.wait()
            except StoreLost as error:
                self._runner.declared_gone(str(error))
                return
            except Exception as error:  # noqa: BLE001 - a loop that ends in silence is the worst way to fail
                self._away = isinstance(error, Unavailable)
                self._runner.note(str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}")
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)


def listener(runner: Watchman, rounds: Sequence[PollLoop]) -> PollLoop:
    """Waits for hints of the store in one task. Wakes the other loops at each hint, and once per pace of the store."""
    looked_at = runner.clock.monotonic()

    async def listen() -> bool:
        nonlocal looked_at
        changed = True
        try:
            changed = await runner.store.wait_for_change(POLL_S)
        finally:
            if changed or runner.clock.monotonic() - looked_at >= runner.store.pace.look_s:
                looked_at = runner.clock.monotonic()
                for each in rounds:
                    each.wake()
        return True

    return PollLoop(runner, "listener", listen)
