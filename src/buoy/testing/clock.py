"""A clock that moves only when it is told to."""

from __future__ import annotations


class ManualClock:
    """Wall and monotonic time in one; both begin at a time that means nothing."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def advance(self, span_s: float) -> float:
        """Moves on by that long, and gives the new time."""
        assert span_s >= 0, "time does not go back"
        self._now += span_s
        return self._now
