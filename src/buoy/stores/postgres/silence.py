"""Silence: a warning for the user of a server that does not answer.

A server that demands a synchronous replica and has none lets every commit wait, for hours if need be. So does one that
is stopped, or whose disk hangs. Neither gives an error, and a command that waits looks like one that works.
Invariant: one warning when the first call is overdue, and one when none is any more, however many calls wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType

_LOG = logging.getLogger("buoy.stores")

# A call that takes longer is overdue.
SILENT_S = 10.0


class Silence:
    """The calls of one store that wait for the server."""

    def __init__(self, store_name: Callable[[], str]) -> None:
        self.store_name = store_name
        self._overdue = 0

    def watch(self) -> _Watch:
        """Enter it around a call."""
        return _Watch(self)

    def began(self) -> None:
        self._overdue += 1
        if self._overdue == 1:
            text = "%s has not answered for %g s, and this process waits for it; `buoy doctor` may know why"
            _LOG.warning(text, self.store_name(), SILENT_S)

    def ended(self) -> None:
        self._overdue -= 1
        if not self._overdue:
            _LOG.warning("%s answers again", self.store_name())


class _Watch:
    __slots__ = ("_overdue", "_silence", "_timer")

    def __init__(self, silence: Silence) -> None:
        self._silence = silence
        self._overdue = False

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SILENT_S, self._tell)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._overdue:
            self._silence.ended()

    def _tell(self) -> None:
        self._overdue = True
        self._silence.began()
