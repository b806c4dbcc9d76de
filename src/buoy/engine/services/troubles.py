"""Troubles: what went wrong in one process, counted and shown.

Invariant: a loop that survives an error counts it here, or is one of `loops`; nothing is swallowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

_LOG = logging.getLogger("buoy.engine")


class Troubled(Protocol):
    """A loop that survives errors, counts them and keeps the last one."""

    errors: int
    last_error: str | None


class Troubles:
    """The errors of a runner and of the loops that belong to its process."""

    def __init__(self, loops: list[Troubled]) -> None:
        self.loops = loops
        self.errors = 0
        self.last_error: str | None = None
        # Shows a trouble to the person at the terminal.
        self.on_note: Callable[[str], None] | None = None
        # Shows that one is over.
        self.on_over: Callable[[str], None] | None = None
        # For tests: an error that the engine did not expect is a bug of the engine, even if it is contained.
        self.on_unexpected: Callable[[str], None] | None = None

    def note(self, text: str, error: Exception | None = None) -> None:
        """Counts a trouble and shows it. `error`: an unexpected one, whose traceback goes to Python's log."""
        self.errors += 1
        self.last_error = text
        if error is not None:
            _LOG.error("%s", text, exc_info=error)
            if self.on_unexpected is not None:
                self.on_unexpected(text)
        self.tell(self.on_note, text)

    def over(self, text: str) -> None:
        """Shows that a trouble is over. The same one counts as new from now on."""
        self.tell(self.on_over, text)

    def tell(self, callback: Callable[[T], None] | None, what: T) -> None:
        """Calls back a watcher. One that fails, because its terminal is gone, affects no run."""
        if callback is not None:
            try:
                callback(what)
            except Exception as broken:  # noqa: BLE001 - counted and logged; the runner goes its way
                self.errors += 1
                _LOG.error("cannot be shown: %s", what, exc_info=broken)

    def total(self) -> tuple[int, str | None]:
        """The number of errors, and the last one."""
        last = [each.last_error for each in self.loops if each.last_error is not None]
        return self.errors + sum(each.errors for each in self.loops), self.last_error or (last[0] if last else None)
