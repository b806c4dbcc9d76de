"""Begun: a coroutine that was begun outside of the task that brings it to its end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any


class Begun:
    """What is left of a coroutine that has to wait for something. Awaited once, it gives the coroutine's result."""

    __slots__ = ("_send", "_throw", "_waits_for")

    def __init__(self, send: Callable[[Any], Any], throw: Callable[[BaseException], Any], waits_for: Any) -> None:
        self._send = send
        self._throw = throw
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            try:
                try:
                    got = yield waits_for
                except BaseException as error:  # noqa: BLE001 - handed on to where it belongs
                    waits_for = self._throw(error)
                else:
                    waits_for = self._send(got)
            except StopIteration as end:
                return end.value
