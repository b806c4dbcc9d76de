"""What the guard of jobs tells its runner: lines of JSON, several at once while other commands wait for their turn.

Invariants: no line waits longer than `_SAY_S`, and none while fewer commands wait than have ended: the runner needs
time to send more. Standard library only: the guard imports nothing else.
"""

import json
import os

_SAY_S = 0.05
SAY_MS = int(_SAY_S * 1000)


class GuardOutput:
    """The lines that the runner has not got yet."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._lines: list[bytes] = []
        self._due: float | None = None

    @property
    def empty(self) -> bool:
        return not self._lines

    def add(self, report: "dict[str, object]") -> None:
        self._lines.append(json.dumps(report).encode() + b"\n")

    def write(self, now: float, waiting: int) -> None:
        """Writes what is due. `waiting`: so many commands wait for their turn."""
        if not self._lines:
            return
        if self._due is None:
            self._due = now + _SAY_S
        if len(self._lines) < waiting and now < self._due:
            return
        data, self._lines, self._due = b"".join(self._lines), [], None
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            pass  # the runner is gone; the next runner runs the job again
