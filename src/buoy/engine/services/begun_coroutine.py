"""Begun coroutines: lets one task finish a coroutine that another task started."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any


def resume_coroutine(
    coro: Coroutine[Any, Any, Any], waits_for: Any, context: Context | None = None
) -> Generator[Any, Any, Any]:
    """Runs a coroutine that waits for something to its end, in its context, and returns its result."""
    while True:
        try:
            try:
                got = yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on to where it belongs
                waits_for = coro.throw(error) if context is None else context.run(coro.throw, error)
            else:
                waits_for = coro.send(got) if context is None else context.run(coro.send, got)
        except StopIteration as end:
            return end.value


class BegunCoroutine:
    """The rest of a started coroutine. Await it once to get the coroutine's result."""

    __slots__ = ("_rest",)

    def __init__(self, coro: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._rest = resume_coroutine(coro, waits_for)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._rest
