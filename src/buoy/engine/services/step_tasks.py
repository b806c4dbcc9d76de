"""Step tasks: execute the async bodies of one runner. One task runs one body after another until a body has to wait.

Invariants: bodies begin in the order in which they came, each in its own context. A task whose body has to wait belongs
to that body and ends with it; other tasks take the bodies that are left. So no body waits for another one. No task
runs for longer than `SLICE_S` without a turn of the loop.
A body that waits has two tasks take the rest: where one waits most do,
and n bodies begin within log n turns of the loop.
A task for each body costs a sequential step 13 % more processor time (`benchmarks/speed_tricks.py`), and a turn of the
loop besides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Protocol

from buoy.engine.services.begun_coroutine import resume_coroutine

SLICE_S = 0.005


class Carried(Protocol):
    """A body, as its task sees it. A protocol, since step attempts are in a room above this one (`engine.run`)."""

    task: asyncio.Task[None] | None

    def crashed(self, error: Exception) -> None:
        """The body, or what carries it, failed in a way that is no outcome of the step. Never raises."""
        ...

    def begin(self) -> Coroutine[Any, Any, None]:
        """What it has to do, which runs in a context of its own. Made at the last moment: most bodies are over at once,
        and what they need is best made and forgotten in one go."""
        ...


class StepTasks:
    """Takes bodies and runs them on tasks of the running loop."""

    def __init__(self) -> None:
        self._queue: deque[Carried] = deque()
        self._context = Context()
        # Tasks that take the next bodies; a number that grows when one is done; how many more the loop will make.
        self._takers: set[asyncio.Task[None]] = set()
        self._shift = 0
        self._called = 0
        # Tasks whose bodies wait.
        self._carrying: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Keeps the caller's context: bodies see the caller's variables, not those of earlier bodies."""
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()

    def on_loop(self, work: Callable[[], None]) -> None:
        """Has work done on the loop of the runner, for a body in any thread. After the loop's end it is left undone."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work)

    def cancelled(self) -> list[asyncio.Task[None]]:
        """Tasks that were cancelled and have not ended: a job, for example, that has time to save its work."""
        return [task for task in self._carrying if task.cancelling()]

    def add(self, body: Carried) -> None:
        """Runs the body soon. Its `task` is set when it begins."""
        self._queue.append(body)
        if not self._called and not self._live_takers():
            self._call_a_taker()

    def _live_takers(self) -> int:
        """How many tasks will take bodies. One that was cancelled before it began never did."""
        if self._takers:
            self._takers = {task for task in self._takers if not task.done()}
        return len(self._takers)

    def _call_a_taker(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is None:
            self._make_taker()
        else:
            # It may run a new task at once, inside of the call that makes it (eager tasks): never inside of this one.
            self._called += 1
            loop.call_soon(self._new_task)

    def _new_task(self) -> None:
        self._called -= 1
        self._make_taker()

    def _make_taker(self) -> None:
        shift = self._shift
        task = asyncio.get_running_loop().create_task(self._take(), context=self._context.copy())
        if shift == self._shift:
            self._takers.add(task)  # else its turn is over already

    async def _take(self) -> None:
        await self._bodies()

    @coroutine
    def _bodies(self) -> Generator[Any, Any, None]:
        """Runs bodies until one waits, the time is up or none is left."""
        loop, task, queue = asyncio.get_running_loop(), asyncio.current_task(), self._queue
        assert task is not None
        until = loop.time() + SLICE_S
        rest: Generator[Any, Any, None] | None = None
        try:
            while queue:
                body, context = queue.popleft(), self._context.copy()
                body.task = task
                try:
                    coro = body.begin()
                    waits_for = context.run(coro.send, None)
                except StopIteration:
                    # A body that has cancelled its own task must not leave that to the next one.
                    if task.cancelling() or loop.time() > until:
                        break
                except Exception as error:  # noqa: BLE001 - reported to the body's run; the next body is not affected
                    body.crashed(error)
                else:
                    rest = self._rest_of(body, task, resume_coroutine(coro, waits_for, context))
                    break
        finally:
            self._takers.discard(task)
            self._shift += 1
            if queue:
                there = self._called + self._live_takers()
                for _ in range(min(1 if rest is None else 2, len(queue) - there)):
                    self._call_a_taker()
        if rest is not None:
            yield from rest

    def _rest_of(
        self, body: Carried, task: asyncio.Task[None], rest: Generator[Any, Any, None]
    ) -> Generator[Any, Any, None]:
        self._carrying.add(task)
        try:
            yield from rest
        except Exception as error:  # noqa: BLE001 - reported to the body's run
            body.crashed(error)
        finally:
            self._carrying.discard(task)
