"""Timers: one heap of due times for all runs of a process, and one timer for its earliest.

Invariants: due times are wall-clock times, but a clock that is set back delays no timer: what is due in a minute comes
in a minute. No timer rings before its time. The timer looks again at least once a minute, so suspending the machine
delays a timer by no more. A callback that fails is reported and delays no other timer. Cancelled timers are at most
half of the heap.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from itertools import count

from buoy.ports.host import Clock

_LOG = logging.getLogger("buoy.engine")

_LOOK_AGAIN_S = 60.0


# A heap with fewer cancelled timers than this is not worth the trouble of making it again.
_CANCELLED_MIN = 100


class Timer:
    """One due time. `cancel` is cheap; the heap forgets it later."""

    __slots__ = ("_timers", "callback")

    def __init__(self, timers: Timers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.forget_cancelled()


class Timers:
    """Calls back at due times."""

    _look_again_s = _LOOK_AGAIN_S

    def __init__(self, clock: Clock, on_error: Callable[[Exception], None] | None = None) -> None:
        self._clock = clock
        self._on_error = on_error or _log
        self._cancelled = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._offset = clock.now() - clock.monotonic()

    def set(self, due_at: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        # The wall clock first, here and in `_now`: a process that stands still between the two readings (preempted, or
        # stopped) then rings late by that time. The other way around it would ring too soon.
        wait_s = due_at - self._clock.now()
        at = self._now() + wait_s
        heapq.heappush(self._heap, (at, next(self._order), timer))
        self._arm()
        return timer

    def forget_cancelled(self) -> None:
        """One more timer was cancelled: long timers that are set and cancelled in a loop must not fill the heap."""
        self._cancelled += 1
        if self._cancelled > max(_CANCELLED_MIN, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _now(self) -> float:
        """A time that advances with the wall clock, and with the monotonic one where the wall clock is set back."""
        wall = self._clock.now()
        monotonic = self._clock.monotonic()
        self._offset = max(self._offset, wall - monotonic)
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
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled = max(self._cancelled - 1, 0)
                continue
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - reported; the other timers are due anyway
                self._on_error(error)
        self._arm()


def _log(error: Exception) -> None:
    _LOG.error("a timer's callback failed", exc_info=error)
