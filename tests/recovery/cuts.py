"""A store that is cut off at one of its calls: the caller dies there, or gets no answer."""

from __future__ import annotations

from typing import Any

from buoy.errors import Unavailable
from buoy.ports.store import Store


class Killed(BaseException):
    """The process ended here. Nothing may catch it."""


class CutStore:
    """Hands every call to the store below; at call number `at` it does what `how` says.

    `dies before`, `dies after`: the process ends before the call, or after it and before its answer. `fails before`,
    `fails after`: the call is not answered, and the caller lives.
    """

    def __init__(self, below: Store, at: int, how: str) -> None:
        self._below = below
        self._at = at
        self._how = how
        self.calls = 0
        self.struck = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._below, name)
        if name == "archive":
            return _Part(self, found)
        return self.cut(name, found) if callable(found) else found

    def cut(self, name: str, found: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            struck = self.calls == self._at
            self.struck |= struck
            if struck and self._how.endswith("before"):
                self._strike(name)
            answer = await found(*args, **kwargs)
            if struck:
                self._strike(name)
            return answer

        return call

    def _strike(self, name: str) -> None:
        if self._how.startswith("dies"):
            raise Killed(name)
        raise Unavailable(f"no answer to {name} (a test)")


class _Part:
    """A part of the store, whose calls count among those of the whole."""

    def __init__(self, whole: CutStore, below: Any) -> None:
        self._whole = whole
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return self._whole.cut(name, getattr(self._below, name))
