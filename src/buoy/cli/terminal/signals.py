"""Signals: the first one asks for a graceful stop, the second ends the process at once.

Why not the event loop's own handlers: those wait for the loop, and a workflow that spins would keep the second signal
from ever being heard.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from buoy.errors import Unavailable

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"


class Stop:
    """The request to stop this process, with the name of its signal."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.name: str | None = None
        self.asked = asyncio.Event()
        self._loop = loop
        self._signalled = False

    def ask(self, name: str) -> None:
        """Asks for a graceful stop in another way than by a signal, from any thread. The first cause counts."""
        if self.name is None:
            self.name = name
            self._loop.call_soon_threadsafe(self.asked.set)

    async def interrupts(self, work: Coroutine[Any, Any, T], patience_s: float = 0.0) -> T:
        """What the work gives. `Unavailable` if it has no end when a stop was asked for so long ago."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and patience_s:
                await asyncio.wait([task], timeout=patience_s)
            if not task.done():
                raise Unavailable(
                    f"{self.name} came before the store had answered; look at it, then repeat the command"
                )
            return task.result()
        finally:
            asked.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def handle(self, number: int, frame: FrameType | None) -> None:
        # A service may signal parent and child, and the parent asks its child too: that is one stop, not two.
        if not self._signalled:
            self._signalled = True
            self.ask(signal.Signals(number).name)
            return
        # Straight to the descriptor: the interrupted code may be in the middle of a write.
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
        os._exit(128 + number)


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """SIGINT and SIGTERM are handled inside."""
    stop = Stop(asyncio.get_running_loop())
    before = {each: signal.signal(each, stop.handle) for each in _SIGNALS}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def end_at_once(code: int) -> None:
    """Ends the process although something in it does not end. Its lock is free from now on, which proves its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # the reader is gone
    os._exit(code)
