"""Skipping time: days of sleep in milliseconds, on any asyncio loop.

How: the loop's time is that of a clock. The clock stands still while a task has something to do, and jumps to the next
timer as soon as every task waits. For work outside of the loop (a thread, a socket that a step waits for) the loop
waits in real time. Only if that work takes longer than the next timer does the clock move during it.
Invariant: nothing here depends on how fast the machine is, unless the code under test does.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from buoy.core.durations import Duration, seconds
from buoy.engine.services.timers import Timers

# The first of January 2026, 00:00 UTC: the same day in every test.
START_AT = 1_767_225_600.0
_LEAST_S = 1e-6


class SkippingClock:
    """Wall and monotonic time for tests. It moves by `advance`, and by itself when every task only waits for it."""

    def __init__(self, start_at: float = START_AT) -> None:
        self._start_at = start_at
        self._passed_s = 0.0
        self._loop_base_s = 0.0

    def now(self) -> float:
        """Seconds since 1970, as `time.time`."""
        return self._start_at + self._passed_s

    def monotonic(self) -> float:
        return self._passed_s

    @property
    def passed_s(self) -> float:
        """How much time has passed since the clock was made."""
        return self._passed_s

    def advance(self, span: Duration) -> float:
        """Moves on by that long (`90`, `"3d"`), and gives the new time."""
        self._passed_s += seconds(span, "advance")
        return self.now()

    # For the loop whose time this is.

    def begin_loop(self, loop_time: float) -> None:
        """Continues the loop's own time from where it is: its existing timers keep their meaning."""
        self._loop_base_s = loop_time - self._passed_s

    def loop_time(self) -> float:
        return self._loop_base_s + self._passed_s

    def skip(self, span_s: float) -> None:
        # At least so much that a float of some years really changes, else the loop would wait forever.
        self._passed_s += max(span_s, _LEAST_S)


class SkippingSelector(selectors.BaseSelector):
    """Stands before a loop's selector: where the loop would wait for a time, the clock moves on instead."""

    def __init__(
        self,
        inner: selectors.BaseSelector,
        clock: SkippingClock,
        busy: Callable[[], bool],
        on_idle: Callable[[], None],
    ) -> None:
        self.inner = inner
        self._clock = clock
        self._busy = busy
        self._on_idle = on_idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self.inner.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._busy():
            ready = self.inner.select(timeout)
            if not ready and timeout is not None:
                self._clock.skip(timeout)
        elif timeout is None:
            self._on_idle()
        else:
            self._clock.skip(timeout)
        return ready

    @property
    def foreign(self) -> int:
        """How many descriptors are watched besides the loop's own."""
        return len(self.inner.get_map()) - 1

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self.inner.get_map()

    def close(self) -> None:
        self.inner.close()


class Outside:
    """Work outside of the loop, for which the loop has to wait in real time."""

    def __init__(self) -> None:
        self.jobs = 0
        # Others who know about work outside.
        self.also: Callable[[], bool] = lambda: False

    @property
    def busy(self) -> bool:
        return self.jobs > 0 or self.also()

    @contextmanager
    def job(self) -> Iterator[None]:
        self.jobs += 1
        try:
            yield
        finally:
            self.jobs -= 1


@contextmanager
def skipping_time(
    loop: asyncio.AbstractEventLoop,
    clock: SkippingClock,
    outside: Outside,
    executing: Callable[[], bool],
    on_idle: Callable[[], None],
) -> Iterator[None]:
    """Inside, the loop goes by the clock. `executing`: whether a step is under way, for which sockets may matter.

    `on_idle` is called when nothing can ever happen any more: no timer is set, and nothing outside of the loop works.
    """
    if not isinstance(loop, asyncio.SelectorEventLoop):
        raise RuntimeError(f"time can be skipped on asyncio's own loops only, and this is a {type(loop).__name__}")
    inner: selectors.BaseSelector = vars(loop)["_selector"]
    selector = SkippingSelector(inner, clock, lambda: outside.busy or (executing() and selector.foreign > 0), on_idle)
    clock.begin_loop(loop.time())
    patches = {
        "time": clock.loop_time,
        "_selector": selector,
        **_counted(loop, outside),
        # A timer is due when its time is reached; after some years a float cannot tell a nanosecond any more.
        "_clock_resolution": _LEAST_S,
    }
    before = {name: vars(loop)[name] for name in patches if name in vars(loop)}
    vars(loop).update(patches)
    try:
        yield
    finally:
        for name in patches:
            vars(loop).pop(name)
        vars(loop).update(before)


def _counted(loop: Any, outside: Outside) -> dict[str, Callable[..., Any]]:
    """The ways from a loop into threads and processes, each of which reports that work is under way there."""
    execute, spawn, reaped = loop.run_in_executor, loop._make_subprocess_transport, loop._child_watcher_callback

    def less(*_: object) -> None:
        outside.jobs -= 1

    def counted_executor(executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = execute(executor, func, *args)
        outside.jobs += 1
        future.add_done_callback(less)
        return future

    async def counted_spawn(*args: Any, **kwargs: Any) -> Any:
        outside.jobs += 1
        try:
            return await spawn(*args, **kwargs)
        except BaseException:
            less()
            raise

    def counted_reaped(*args: Any) -> None:
        less()
        reaped(*args)

    return {
        "run_in_executor": counted_executor,
        "_make_subprocess_transport": counted_spawn,
        "_child_watcher_callback": counted_reaped,
    }


class SkippingAlarms(Timers):
    """Timers for a clock that is never set: there is no need to look again every minute."""

    _look_again_s = math.inf
