"""Wire: what readers of live streams get, as bytes, encoded once for all readers of the same events.

Invariant: whatever way a reader is written to, it gets the same bytes.
"""

from __future__ import annotations

from typing import Protocol

from buoy.web.redaction import Redaction
from buoy.web.tail import Frame

STILL_THERE = b": still there\n\n"
# How a connection that takes whole chunks is named among the extensions of its ASGI scope.
CHUNKS = "buoy.chunks"


class ChunkWriter(Protocol):
    """A connection that can be written to without its task."""

    def write_chunk(self, chunk: bytes) -> bool:
        """Writes one chunk of a chunked body. False: the reader is slow, or gone; nothing was written."""
        ...


def message(name: str, data: bytes, number: int | None = None) -> bytes:
    """One server-sent event. JSON has no line breaks of its own."""
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), data)


class Wire:
    """Encodes frames. What it encoded last it keeps, since the next reader mostly wants the same."""

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction
        self._frames: list[Frame] = []
        self._text = STILL_THERE
        self._chunk = _chunk(STILL_THERE)
        self._still_there = self._chunk

    def text(self, frames: list[Frame]) -> bytes:
        """The frames as server-sent events."""
        self._encode(frames)
        return self._text

    def chunk(self, frames: list[Frame]) -> bytes:
        """The same as one chunk of an HTTP body; without frames: that the server is still there."""
        if not frames:
            return self._still_there
        self._encode(frames)
        return self._chunk

    def _encode(self, frames: list[Frame]) -> None:
        if frames == self._frames:
            return
        parts = [message(each.name, self.redaction.apply(each.data), each.seq or None) for each in frames]
        self._frames, self._text = frames, b"".join(parts)
        self._chunk = _chunk(self._text)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
