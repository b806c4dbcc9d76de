"""What the guard of jobs hears from its runner: frames of four bytes of length and JSON.

Invariant: an order is read once, when all of it is there. Standard library only: the guard imports nothing else.
"""

import json
from collections.abc import Iterator

_HEAD_BYTES = 4


class GuardInput:
    """The part of a frame that has come so far."""

    def __init__(self) -> None:
        self._rest = b""

    def orders(self, data: bytes) -> "Iterator[dict[str, object]]":
        """The orders that are complete with these bytes."""
        data, at = self._rest + data, 0
        while len(data) >= at + _HEAD_BYTES:
            begins = at + _HEAD_BYTES
            ends = begins + int.from_bytes(data[at:begins], "big")
            if len(data) < ends:
                break
            at = ends
            yield json.loads(data[begins:ends])
        self._rest = data[at:]
