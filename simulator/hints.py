"""Hints: tells waiting processes that something changed; late, or sometimes not at all. Nothing may depend on them."""

from __future__ import annotations

import asyncio
from random import Random

from simulator.kernel import Kernel

_DELAY_S = 0.1


class Hints:
    """Who waits for a change of the shared data. Each process has its own luck."""

    def __init__(self, kernel: Kernel, seed: str, *, lost: float) -> None:
        self._kernel = kernel
        self._seed = seed
        self._lost = lost
        self._luck: dict[str, Random] = {}
        self._waiting: list[tuple[Random, asyncio.Future[bool]]] = []

    def changed(self) -> None:
        """A process wrote. Each waiting process hears of it in its own time, or never."""
        waiting, self._waiting = self._waiting, []
        for luck, waiter in waiting:
            if luck.random() < self._lost:
                self._waiting.append((luck, waiter))
            else:
                when = self._kernel.time + luck.random() * _DELAY_S
                waiter.get_loop().call_at(when, _wake, waiter)

    async def wait(self, who: str, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(timeout_s, _give_up, waiter)
        luck = self._luck.setdefault(who, Random(f"{self._seed} {who}"))
        self._waiting.append((luck, waiter))
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
