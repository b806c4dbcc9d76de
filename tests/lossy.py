"""A real store that loses every tenth answer, by a seed: the call never reaches the store, or does its work unheard."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from buoy.errors import Unavailable
from buoy.ports.store import Store

# They ask the store nothing, or end it.
_CERTAIN = frozenset({"wait_for_change", "close", "met", "now"})
_PARTS = frozenset({"archive", "integrity", "schedules"})


class LossyStore:
    """Hands everything to the store below. `lost` counts the answers that did not come, by call."""

    def __init__(self, below: object, seed: int | Random, rate: float = 0.1) -> None:
        self._below = below
        self._dice = seed if isinstance(seed, Random) else Random(seed)
        self.rate = rate
        self.lost: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._below, name)
        if name in _PARTS and not callable(found):
            part = LossyStore(found, self._dice, self.rate)
            part.lost = self.lost
            return part
        if not callable(found) or name in _CERTAIN:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            dice = self._dice.random()
            if dice < self.rate / 2:
                self._lose(name)
            answer = await found(*args, **kwargs)
            if dice > 1.0 - self.rate / 2:
                self._lose(name)
            return answer

        return call

    def _lose(self, name: str) -> None:
        self.lost[name] += 1
        raise Unavailable(f"the answer to {name} was lost (a test)")


def lossy(below: Store, seed: int) -> Any:
    """A store for the engine that loses answers."""
    return LossyStore(below, seed)
