"""The kernel: virtual time, and the order in which simulated processes get their turn. All chance comes from one seed.

Invariants: within one process callbacks run in the order in which asyncio made them ready; between processes any order
is possible, and the seed decides: each process draws tickets of its own, and the lowest one has its turn. So what one
process does when another one is left out of the story stays as alike as can be. Time stands still while anybody is
ready. A dead process never runs again: what is
handed to its loop is dropped; its tasks are kept, so that no `finally` of theirs runs before the simulation is over.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from itertools import count
from random import Random
from typing import Any

# Turns that one process may get in a row. Ones are frequent, so that every interleaving is possible.
_BURSTS = (1, 1, 1, 2, 3, 5, 8)


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, kernel: Kernel, name: str, rng: Random, on_trouble: Callable[[str], None]) -> None:
        self.kernel = kernel
        self.name = name
        self._rng = rng
        self._bits = rng.getrandbits
        self.ticket = rng.random()
        self.dead = False
        self.frozen = False
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._order = count()
        self._on_trouble = on_trouble

    @property
    def runs(self) -> bool:
        return not self.dead and not self.frozen

    def kill(self) -> None:
        self.dead = True
        self.ready.clear()
        self.timers.clear()
        self.kernel.forget(self)

    # What asyncio needs of a loop.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.kernel.time + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            heapq.heappush(self.timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: a cancelled timer is dropped when its time comes."""

    def time(self) -> float:
        return self.kernel.time

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: there are no threads here. Who waits for it gets its turn with the others."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the waiting task gets it
            future.set_exception(error)
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any) -> Any:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if name is not None:
            task.add_done_callback(self._named_done)
        return task

    def _named_done(self, task: asyncio.Task[Any]) -> None:
        """A task with a name is a loop of the engine: one that dies of an error is a finding."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_trouble(f"the loop {task.get_name()} died of {error!r}")

    def get_task_factory(self) -> Any:
        """Not None, so that libraries create their tasks here, where the kernel knows them."""
        return self.create_task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Lost results of tasks are reported when they are collected, which is no part of the simulation.
        if error is not None and "never retrieved" not in str(context.get("message")):
            self._on_trouble(f"{context.get('message')}: {error!r}")

    # What the kernel does with it.

    def ripen(self, now: float) -> None:
        """Timers that are due become ready."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self.ready.append(handle)

    def run_some(self) -> int:
        """As many callbacks as the process gets in a row. How many there were."""
        asyncio._set_running_loop(self)
        turns = self._burst()
        self.ticket = self._rng.random()
        done = 0
        ready = self.ready
        try:
            while done < turns and ready and not self.dead and not self.frozen:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                done += 1
        finally:
            asyncio._set_running_loop(None)
        return done

    def _burst(self) -> int:
        """As `rng.choice(_BURSTS)`, with the same draws: it is asked in every turn."""
        draw = self._bits(3)
        while draw >= len(_BURSTS):
            draw = self._bits(3)
        return _BURSTS[draw]

    def pending(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if not task.done()]


class Kernel:
    """Runs loops, one turn after the other."""

    def __init__(self, seed: str, turns_max: int) -> None:
        self._seed = seed
        self.time = 0.0
        self.turns = 0
        self.turns_max = turns_max
        self.loops: list[SimLoop] = []
        # The dead are kept, but no longer looked at.
        self._living: list[SimLoop] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def exhausted(self) -> bool:
        return self.turns >= self.turns_max

    def make_loop(self, name: str, on_trouble: Callable[[str], None]) -> SimLoop:
        loop = SimLoop(self, name, Random(f"{self._seed} {name}"), on_trouble)  # type: ignore[abstract]
        self.loops.append(loop)
        self._living.append(loop)
        return loop

    def forget(self, loop: SimLoop) -> None:
        self._living = [each for each in self._living if each is not loop]

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Something that happens to the simulated world, outside of its processes."""
        heapq.heappush(self._agenda, (max(when, self.time), next(self._order), action))

    def spawn(self, loop: SimLoop, coro: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = loop.create_task(coro, name=f"of {loop.name}", context=context or copy_context())
        return task

    def run_until(self, done: Callable[[], bool], deadline: float) -> bool:
        """Runs until `done`, asked whenever time has moved, or until the deadline. Returns whether it was done."""
        while not self.exhausted:
            self._run_ready()
            if done():
                return True
            when = self._next_time()
            if when is None or when > deadline:
                self.time = max(self.time, min(deadline, when or deadline))
                return False
            self._move_to(when)
        return False

    def _run_ready(self) -> None:
        while not self.exhausted:
            first, ticket = None, 1.0
            for loop in self._living:
                if loop.ready and loop.ticket < ticket and not loop.frozen:
                    first, ticket = loop, loop.ticket
            if first is None:
                return
            self.turns += first.run_some()

    def _next_time(self) -> float | None:
        soonest = self._agenda[0][0] if self._agenda else None
        for loop in self._living:
            timers = loop.timers
            if loop.frozen or not timers:
                continue
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if timers and (soonest is None or timers[0][0] < soonest):
                soonest = timers[0][0]
        return soonest

    def _move_to(self, when: float) -> None:
        self.time = max(self.time, when)
        while self._agenda and self._agenda[0][0] <= self.time:
            heapq.heappop(self._agenda)[2]()
        now = self.time
        for loop in self._living:
            if loop.timers and loop.timers[0][0] <= now and not loop.frozen:
                loop.ripen(now)


def bury_loops(kernel: Kernel) -> int:
    """Ends what still waits in every process, after the simulation. Their clean-up has no effect. Who objected."""
    objections = 0
    for loop in kernel.loops:
        loop.kill()
        asyncio._set_running_loop(loop)
        try:
            for task in loop.pending():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coro = task.get_coro()
                try:
                    if coro is not None:
                        coro.close()
                except BaseException:  # noqa: BLE001 - code that objects to being dropped has no say
                    objections += 1
        finally:
            asyncio._set_running_loop(None)
    return objections
