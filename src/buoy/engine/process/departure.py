"""Departure: what a runner that stops tells its store, for a bounded time.

A server that waits for a missing replica answers no write and gives no error. Invariant: what has no answer in time is
left as after a kill. Others then prove the end of this process, and release what it held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from buoy.core import limits
from buoy.errors import Problem

# How long a runner waits that was never registered: it holds nothing.
_UNREGISTERED_S = 2.0


class Departure:
    """The last calls of a runner."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        # The store gave no answer in time. Other calls would wait in vain, too.
        self.silent = False

    async def ask(self, call: Coroutine[Any, Any, object], *, registered: bool = True) -> bool:
        """Whether the store has carried this out. What went wrong is noted."""
        patience_s = limits.STOP_ANSWER_S if registered else _UNREGISTERED_S
        try:
            async with asyncio.timeout(patience_s):
                await call
        except TimeoutError:
            self.silent = True
            self._note(f"the store gave no answer for {patience_s:g} s; this process ends without it")
        except Problem as error:
            self._note(str(error))
        else:
            return True
        return False
