"""Typed: lines that a person types, read without a thread.

Invariant: a stop is never held up by a line that does not come; what was typed for one question never answers another.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios

_READ_BYTES = 65_536


class Typed:
    """Lines from standard input, one at a time."""

    def __init__(self) -> None:
        self._kept = b""

    async def line(self) -> str | None:
        """The next line; None at the end of the input."""
        while b"\n" not in self._kept:
            chunk = await self._chunk()
            if not chunk:
                rest, self._kept = self._kept, b""
                return rest.decode(errors="replace") if rest else None
            self._kept += chunk
        first, _, self._kept = self._kept.partition(b"\n")
        return first.decode(errors="replace")

    def discard(self) -> None:
        """Forgets what was typed on a terminal and not read yet. A file or a pipe keeps its lines."""
        if sys.stdin.isatty():
            self._kept = b""
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    async def _chunk(self) -> bytes:
        try:
            descriptor = sys.stdin.fileno()
            await _readable(descriptor)
        except (OSError, ValueError):
            # A file, or no real descriptor at all: reading it never blocks.
            return sys.stdin.readline().encode()
        return os.read(descriptor, _READ_BYTES)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def found() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, found)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
