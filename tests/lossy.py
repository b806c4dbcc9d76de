"""A real store that loses every tenth answer, by a seed: the call never reaches the store, or does its work unheard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

from buoy.errors import Unavailable, Unclear
from buoy.ports.host import Clock
from buoy.ports.store import Store
from buoy.stores import open_store
from buoy.wiring import inspection
from tests.patience import PATIENCE_S

T = TypeVar("T")

# They ask the store nothing, or end it.
_CERTAIN = frozenset({"wait_for_change", "close", "met", "now"})
_PARTS = frozenset({"archive", "integrity", "schedules"})


class LossyStore:
    """Hands everything to the store below. `lost` counts the answers that did not come, by call.

    `rates`: how often the answers of a call are lost, where that is not `rate`.
    """

    def __init__(
        self, below: object, seed: int | Random, rate: float = 0.1, rates: Mapping[str, float] | None = None
    ) -> None:
        self._below = below
        self._dice = seed if isinstance(seed, Random) else Random(seed)
        self.rate = rate
        self.rates = rates or {}
        self.lost: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._below, name)
        if name in _PARTS and not callable(found):
            return self._also(found)
        if not callable(found) or name in _CERTAIN:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            dice, rate = self._dice.random(), self.rates.get(name, self.rate)
            if dice < rate / 2:
                self._lose(name)
            answer = await found(*args, **kwargs)
            if dice > 1.0 - rate / 2:
                self._lose(name)
            return self._also(answer) if name == "reopen" else answer

        return call

    def _also(self, below: object) -> LossyStore:
        """A part of the store, or another connection to it: it loses answers as well."""
        part = LossyStore(below, self._dice, self.rate, self.rates)
        part.lost = self.lost
        return part

    def _lose(self, name: str) -> None:
        self.lost[name] += 1
        raise Unavailable(f"the answer to {name} was lost (a test)")


def lossy(below: Store, seed: int) -> Any:
    """A store for the engine that loses answers."""
    return LossyStore(below, seed)


def lose_answers(seed: int, rates: Mapping[str, float] | None = None) -> list[LossyStore]:
    """Every store that this process opens from now on loses answers. They are added to the list that is given back."""
    opened: list[LossyStore] = []

    async def open_lossy(url: str, clock: Clock) -> LossyStore:
        opened.append(LossyStore(await open_store(url, clock), seed, rates=rates))
        return opened[-1]

    inspection.open_store = open_lossy  # type: ignore[attr-defined]
    return opened


async def surely(call: Callable[[str | None], Awaitable[T]]) -> T:
    """As a careful caller does it: again with the key if it is unclear, again without one if nothing was done."""
    key: str | None = None
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await call(key)
            except Unclear as error:
                key = error.key
            except Unavailable:
                await asyncio.sleep(0)
