"""Faults: what can go wrong at every call to the storage, and for how long. The seed decides what this seed is about.

A write can fail before it happened, or happen and lose its answer; both look the same to the caller. A process can die
before, between or after; it can be slow; and for a while all processes can be cut off.

Invariants: each process has its own random numbers, and each pass through its gate its own number. So a fault has a
name (`worker-2:17`), and a seed can be played again with or without one fault, all else being equal. A fault is counted
when it has happened, under the call of the store that it happened in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING

import msgspec

from buoy.errors import Unavailable

if TYPE_CHECKING:
    from simulator.process import Process

_SHORT_S = 0.02
_LONG_S = 8.0

# The call of the store that is under way. It may go through the gate many times, as those of an object store do.
CALL: ContextVar[str] = ContextVar("store_call", default="open")


class Rates(msgspec.Struct):
    """Chances for each call."""

    crash: float = 0.0
    fail: float = 0.0
    lost: float = 0.0
    slow: float = 0.0
    very_slow: float = 0.0
    # A write that got no answer still arrives, later.
    late: float = 0.0
    # An inbox is read with its messages twice over, and in another order.
    twice: float = 0.0
    # A bucket answers what is not so.
    lie: float = 0.0


class Strike(msgspec.Struct, frozen=True):
    """A crash at one point: before or after the n-th pass of a process through its gate.

    Passes are counted in one call of the store, or in commits with an event of one type (`event child_started`).
    `turn`: strikes not the first process that comes so far, but the second or third.
    """

    name: str
    call: str
    nth: int
    after: bool
    turn: int = 1


class Faults:
    """The faults of one seed. With `on` false the storage is only a little slow."""

    def __init__(self, seed: str, rates: Rates, only: Collection[str] | None, strikes: Sequence[Strike] = ()) -> None:
        self._seed = seed
        self._only = only
        self._aimed = list(strikes)
        self._turns = {strike.name: strike.turn for strike in strikes}
        self.rates = rates
        self.on = True
        # What went wrong, by the names of the faults, and how often by kind.
        self.struck: list[str] = []
        self.counts: dict[str, int] = {}
        # Writes that arrived when their writers had given them up.
        self.late: list[str] = []
        # Until when no process, or none of these processes, gets an answer; and whose heartbeats get none.
        self.outage_until = 0.0
        self.cut_off: dict[str, float] = {}
        self.silent: dict[str, float] = {}

    def dice(self, name: str) -> Random:
        return Random(f"{self._seed} {name}")

    def out(self, process: Process, now: float) -> bool:
        return now < self.outage_until or now < self.cut_off.get(process.name, 0.0)

    def strikes(self, name: str, kind: str | None = None) -> bool:
        """Whether this fault is part of the story, which it then is. Without a kind it is counted when it happened."""
        if self._only is not None and name not in self._only:
            return False
        self.struck.append(name)
        if kind is not None:
            self.count(kind)
        return True

    def was_late(self, part: str) -> bool:
        """Whether a write whose name has that part was late."""
        return any(part in what for what in self.late)

    def count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def aimed(self, call: str, nth: int, *, after: bool) -> bool:
        """Whether a strike was aimed at just this. It strikes once."""
        for strike in self._aimed:
            if (strike.call, strike.nth, strike.after) == (call, nth, after):
                self._turns[strike.name] -= 1
                if self._turns[strike.name] == 0:
                    return True
        return False


class Gate:
    """Stands before and after each call that one process makes to the storage."""

    def __init__(self, process: Process, faults: Faults, name: str, *, beats: bool = False) -> None:
        self.kernel = process.loop.kernel
        self._process = process
        self._faults = faults
        self._name = name
        self._beats = beats
        self._passed = 0
        self._dice = faults.dice(name)
        self._pace = faults.dice(f"{name} pace")
        self._liar = faults.dice(f"{name} lies")

    async def before(self, what: str) -> None:
        faults, process = self._faults, self._process
        if not process.alive:
            await process.loop.create_future()  # what killed it has not come to its end yet, but has no effect
        if not faults.on:
            await self._dawdle(0.1)
            return
        self._passed += 1
        call = CALL.get()
        process.passes[call] = process.passes.get(call, 0) + 1
        dice, amount = self._dice.random(), self._dice.random()
        if faults.aimed(call, process.passes[call], after=False):
            await self._die("before", what)
        if faults.out(process, self.kernel.time) or (self._beats and self._silent()):
            await asyncio.sleep(amount * 0.2)
            raise Unavailable(f"no answer to {what}")
        rates, name = faults.rates, f"{self._name}:{self._passed}"
        if dice < rates.crash:
            if faults.strikes(name):
                await self._die("before", what)
        elif dice < rates.crash + rates.fail:
            if faults.strikes(name, "call that did not happen"):
                process.tell(f"{what} fails")
                raise Unavailable(f"no answer to {what}")
        elif dice > 1.0 - rates.very_slow and faults.strikes(name, "slow call"):
            await asyncio.sleep(amount * _LONG_S)
        await self._dawdle(rates.slow)

    async def after(self, what: str) -> None:
        faults = self._faults
        if not faults.on:
            return
        dice, amount = self._dice.random(), self._dice.random()
        if faults.aimed(CALL.get(), self._process.passes.get(CALL.get(), 0), after=True):
            await self._die("after", what)
        rates, name = faults.rates, f"{self._name}:{self._passed}a"
        if dice < rates.crash:
            if faults.strikes(name):
                await self._die("after", what)
        elif dice < rates.crash + rates.lost:
            if faults.strikes(name, "lost answer"):
                self._process.tell(f"{what} loses its answer")
                raise Unavailable(f"no answer to {what}")
        elif dice > 1.0 - rates.very_slow and faults.strikes(name, "slow call"):
            await asyncio.sleep(amount * _LONG_S)
        await self._dawdle(rates.slow)

    async def at_events(self, kinds: Iterable[str], *, after: bool) -> None:
        """Stands around a commit: a crash may be aimed at an event of these types."""
        passes = self._process.passes
        for call in (f"event {kind}" for kind in kinds):
            if not after:
                passes[call] = passes.get(call, 0) + 1
            if self._faults.on and self._faults.aimed(call, passes[call], after=after):
                await self._die("after" if after else "before", f"the commit of {call.removeprefix('event ')}")

    def late_s(self, what: str) -> float | None:
        """How much later this write will arrive, while its sender believes that it got no answer; None: in time."""
        faults = self._faults
        if not faults.on:
            return None
        dice, amount = self._dice.random(), self._dice.random()
        if dice >= faults.rates.late or not faults.strikes(f"{self._name}:{self._passed}l", "late write"):
            return None
        self._process.tell(f"{what} is on its way, but gets no answer")
        faults.late.append(what)
        return amount * _LONG_S

    def doubles(self) -> bool:
        """Whether what is read now is delivered twice."""
        faults = self._faults
        if not faults.on or self._dice.random() >= faults.rates.twice:
            return False
        return faults.strikes(f"{self._name}:{self._passed}t", "delivered twice")

    def lie(self, what: str, lies: Sequence[str]) -> str | None:
        """Which of these lies the storage tells in its answer to this; None: it tells the truth."""
        faults, dice = self._faults, self._liar
        if not faults.on or not faults.rates.lie or dice.random() >= faults.rates.lie:
            return None
        lie = dice.choice(lies)
        if not faults.strikes(f"{self._name}:{self._passed}x", lie):
            return None
        self._process.tell(f"{what}: {lie}")
        return lie

    def _silent(self) -> bool:
        return self.kernel.time < self._faults.silent.get(self._process.name, 0.0)

    async def _die(self, when: str, what: str) -> None:
        self._process.crash(f"{when} {what}")
        if not self._process.alive:
            self._faults.count(f"crash {when} {CALL.get()}")
            await self._process.loop.create_future()

    async def _dawdle(self, slow: float) -> None:
        dice, amount = self._pace.random(), self._pace.random()
        if dice < slow:
            await asyncio.sleep(amount * _SHORT_S)
        elif dice > 0.7:
            await asyncio.sleep(0)
