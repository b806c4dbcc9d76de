"""What the guard of jobs tells its runner: lines of JSON, several at once while other commands wait for their turn.

Invariant: no line waits longer than `_SAY_S`. Standard library only: the guard imports nothing else.
"""

import json
import os

_SAY_S = 0.01
_BYTES_MAX = 8192
SAY_MS = int(_SAY_S * 1000)


class GuardOutput:
    """The lines that the runner has not got yet."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._data = b""
        self._due: float | None = None

    @property
    def empty(self) -> bool:
        return not self._data

    def add(self, told: "dict[str, object]") -> None:
        self._data += json.dumps(told).encode() + b"\n"

    def write(self, now: float, *, at_once: bool) -> None:
        """Writes what is due."""
        if not self._data:
            return
        if self._due is None:
            self._due = now + _SAY_S
        if not at_once and len(self._data) < _BYTES_MAX and now < self._due:
            return
        data, self._data, self._due = self._data, b"", None
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            pass  # the runner is gone; the next runner runs the job again
