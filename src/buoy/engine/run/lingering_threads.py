"""Lingering: threads of sync steps that still act though nothing waits for them: timed out, cancelled, or dropped.

Invariant: a body is in here from the moment its run stops waiting for it until its thread has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buoy.engine.run.step_attempt import StepAttempt


class Lingering:
    """The threads of one runner that cannot be ended and must be waited for."""

    def __init__(self) -> None:
        self._acting: dict[StepAttempt, str] = {}
        self._moved = asyncio.Event()

    def add(self, body: StepAttempt, what: str, over: Callable[[], None]) -> None:
        """Keeps the body until its thread has ended. `over` is called then."""
        self._acting[body] = what
        body.on_over = partial(self._over, body, over)

    def _over(self, body: StepAttempt, over: Callable[[], None]) -> None:
        self._acting.pop(body, None)
        self._moved.set()
        over()

    async def end(self, patience_s: float, note: Callable[[str], None]) -> None:
        """Waits for the threads to end. Notes those that still act after that time: they end with the process."""
        try:
            async with asyncio.timeout(max(patience_s, 0.0)):
                while self._acting:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            for body, what in self._acting.items():
                note(f"{what} still acts in thread {body.thread}; it ends with this process")
