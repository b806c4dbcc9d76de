"""Faults: what can go wrong at every call to the storage, and for how long. The seed decides what this seed is about.

A write can fail before it happened, or happen and lose its answer; both look the same to the caller. A process can die
before, between or after; it can be slow; and for a while everybody can be cut off.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import msgspec

from buoy.errors import Unavailable

if TYPE_CHECKING:
    from buoy.testing.sim.process import Process

_SHORT_S = 0.02
_LONG_S = 8.0


class Rates(msgspec.Struct):
    """Chances for each call."""

    crash: float = 0.0
    fail: float = 0.0
    lost: float = 0.0
    slow: float = 0.0
    very_slow: float = 0.0
    # A write that nobody answered arrives all the same, later.
    late: float = 0.0


class Faults:
    """The faults of one seed. With `on` false the storage is only a little slow."""

    def __init__(self, rng: Random, rates: Rates) -> None:
        self.rng = rng
        self.rates = rates
        self.on = True
        # Until when nobody, or nobody of these processes, gets an answer.
        self.outage_until = 0.0
        self.cut_off: dict[str, float] = {}

    def out(self, process: Process, now: float) -> bool:
        return now < self.outage_until or now < self.cut_off.get(process.name, 0.0)


class Gate:
    """Stands before and after each call that one process makes to the storage."""

    def __init__(self, process: Process, faults: Faults) -> None:
        self.kernel = process.loop.kernel
        self._process = process
        self._faults = faults

    async def before(self, what: str) -> None:
        faults = self._faults
        if not faults.on:
            await self._dawdle(0.1)
            return
        rates, process = faults.rates, self._process
        if faults.out(process, self.kernel.time):
            await asyncio.sleep(faults.rng.random() * 0.2)
            raise Unavailable(f"no answer to {what}")
        dice = faults.rng.random()
        if dice < rates.crash:
            await self._die(f"before {what}")
        elif dice < rates.crash + rates.fail:
            process.tell(f"{what} fails")
            raise Unavailable(f"no answer to {what}")
        await self._dawdle(rates.slow)

    async def after(self, what: str) -> None:
        faults = self._faults
        if not faults.on:
            return
        rates = faults.rates
        dice = faults.rng.random()
        if dice < rates.crash:
            await self._die(f"after {what}")
        elif dice < rates.crash + rates.lost:
            self._process.tell(f"{what} loses its answer")
            raise Unavailable(f"no answer to {what}")
        await self._dawdle(rates.slow)

    def late_s(self, what: str) -> float | None:
        """How much later this write will arrive, while its sender believes that it got no answer; None: in time."""
        faults = self._faults
        if not faults.on or faults.rng.random() >= faults.rates.late:
            return None
        self._process.tell(f"{what} is on its way, but gets no answer")
        return faults.rng.random() * _LONG_S

    async def _die(self, when: str) -> None:
        self._process.crash(when)
        if not self._process.alive:
            await self._process.loop.create_future()

    async def _dawdle(self, slow: float) -> None:
        rng = self._faults.rng
        dice = rng.random()
        if dice < slow:
            await asyncio.sleep(rng.random() * _SHORT_S)
        elif self._faults.on and dice < slow + self._faults.rates.very_slow:
            await asyncio.sleep(rng.random() * _LONG_S)
        elif dice > 0.7:
            await asyncio.sleep(0)
