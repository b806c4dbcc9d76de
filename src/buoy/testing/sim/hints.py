"""Hints: tells waiting processes that something changed; late, or sometimes not at all. Nothing may depend on them."""

from __future__ import annotations

import asyncio
from random import Random

from buoy.testing.sim.kernel import Kernel

_DELAY_S = 0.1


class Hints:
    """Who waits for a change of the shared data."""

    def __init__(self, kernel: Kernel, rng: Random, *, lost: float) -> None:
        self._kernel = kernel
        self._rng = rng
        self._lost = lost
        self._waiting: list[asyncio.Future[bool]] = []

    def changed(self) -> None:
        """Somebody wrote. Each of those who wait hears of it in its own time, or never."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if self._rng.random() < self._lost:
                self._waiting.append(waiter)
            else:
                when = self._kernel.time + self._rng.random() * _DELAY_S
                waiter.get_loop().call_at(when, _wake, waiter)

    async def wait(self, timeout_s: float) -> bool:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(timeout_s, _give_up, waiter)
        self._waiting.append(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()


def _wake(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(True)


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
