"""Async generators: finalizes abandoned ones on the loop that they began on, a run's private loop or the real one.

Python has one pair of hooks for this in each thread, and setting them is an audited event: doing so at every entry into
workflow code costs a run of one step 9 % more processor time, a sequential step 4 % (`benchmarks/speed_tricks.py`). So
the pair is set once, stays, and hands on what is not a workflow's.

Invariants: a generator belongs to the loop that ran when it was first asked for a value. A generator is
known by its address. Python may use an address again, so the first hook forgets the generator that had it before.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

Generator: TypeAlias = AsyncGenerator[Any, Any]
_Hook: TypeAlias = Callable[[Generator], None] | None

_OWNERS: dict[int, Generators] = {}


class Generators:
    """The async generators of one private loop. Calls `close` for each one that is abandoned before its end."""

    __slots__ = ("_begun", "close")

    def __init__(self, close: Callable[[Generator], None]) -> None:
        self.close = close
        self._begun: dict[int, weakref.ref[Generator]] = {}

    def add(self, generator: Generator) -> None:
        place = id(generator)
        self._begun[place] = weakref.ref(generator)
        _OWNERS[place] = self

    def forget(self) -> None:
        """Drops the loop. A generator that is still referenced stays with it: it must not end on the real loop."""
        for place, begun in self._begun.items():
            generator = begun()
            ended = getattr(generator, "ag_frame", None) is None
            if ended and _OWNERS.get(place) is self:
                del _OWNERS[place]
        self._begun.clear()


class FirstHook:
    """Called when a generator of this thread is asked for its first value."""

    __slots__ = ("_outer",)

    def __init__(self, outer: _Hook) -> None:
        self._outer = outer

    def __call__(self, generator: Generator) -> None:
        own = getattr(asyncio._get_running_loop(), "buoy_generators", None)
        if own is not None:
            own.add(generator)
            return
        _OWNERS.pop(id(generator), None)
        if self._outer is not None:
            self._outer(generator)


class _LastHook:
    """Called when the last reference to an unfinished generator is gone."""

    __slots__ = ("_outer",)

    def __init__(self, outer: _Hook) -> None:
        self._outer = outer

    def __call__(self, generator: Generator) -> None:
        own = _OWNERS.pop(id(generator), None)
        if own is not None:
            own.close(generator)
        elif self._outer is not None:
            self._outer(generator)


def tell_apart() -> bool:
    """Sets the hooks of this thread before those that it has. Whether it has none: then Python itself ends what is not
    a workflow's, and ours must not stay (`leave_alone`)."""
    first, last = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(FirstHook(first), _LastHook(last))
    return last is None


def leave_alone() -> None:
    sys.set_asyncgen_hooks(None, None)
