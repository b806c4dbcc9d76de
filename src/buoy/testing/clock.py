"""A clock that moves only when a test moves it, and one that is wrong."""

from __future__ import annotations

from buoy.ports.host import Clock


class BehindClock:
    """Another machine's clock: its wall time is behind by so much."""

    def __init__(self, clock: Clock, by_s: float) -> None:
        self._clock = clock
        self._by_s = by_s

    def now(self) -> float:
        return self._clock.now() - self._by_s

    def monotonic(self) -> float:
        return self._clock.monotonic()


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
