"""The story of a seed: who did what when, in words. The same seed gives the same story, byte for byte.

Absent on purpose: anything that differs between two executions of one seed (addresses, real times, default task names).
"""

from __future__ import annotations

from collections import deque

STORY_LINES_KEPT = 40


class Story:
    """The last lines; all of them for a trace."""

    def __init__(self, *, whole: bool = False) -> None:
        self._lines: deque[str] = deque(maxlen=None if whole else STORY_LINES_KEPT)
        self.told = 0

    def tell(self, time: float, who: str, what: str) -> None:
        self.told += 1
        self._lines.append(f"{time:10.3f}  {who:<12} {what}")

    def lines(self) -> list[str]:
        return list(self._lines)
