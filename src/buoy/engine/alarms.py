"""Alarms: one heap of due times for all runs of a process, and one timer for its earliest.

Invariant: due times are wall-clock times, but setting the clock back delays nobody: what was to come in a minute comes
in a minute. The timer looks again at least once a minute, so that suspending the machine delays an alarm by no more.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from buoy.ports import Clock

_LOOK_AGAIN_S = 60.0


class Alarm:
    """One due time. `cancel` is cheap; the heap forgets it when its time comes."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Alarms:
    """Calls back at due times."""

    _look_again_s = _LOOK_AGAIN_S

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._offset = clock.now() - clock.monotonic()

    def set(self, due_at: float, callback: Callable[[], None]) -> Alarm:
        alarm = Alarm(callback)
        at = self._now() + due_at - self._clock.now()
        heapq.heappush(self._heap, (at, next(self._order), alarm))
        self._arm()
        return alarm

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _now(self) -> float:
        """A time that goes on with the wall clock, and with the monotonic one where the wall clock is set back."""
        monotonic = self._clock.monotonic()
        self._offset = max(self._offset, self._clock.now() - monotonic)
        return monotonic + self._offset

    def _arm(self) -> None:
        if not self._heap or self._closed:
            return
        first = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= first:
                return
            self._timer.cancel()
        delay_s = min(max(first - self._now(), 0.0), self._look_again_s)
        self._timer_at = first
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._now()
        while self._heap and self._heap[0][0] <= now and not self._closed:
            alarm = heapq.heappop(self._heap)[2]
            if alarm.callback is not None:
                alarm.callback()
        self._arm()
