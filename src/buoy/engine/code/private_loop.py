"""The private event loop: one per async run. Workflow code runs here, and nothing else does.

Invariants: its ready queue moves only in `drain`, after one outcome was delivered, so that the same outcomes in the
same order always do the same; its time is when the code saw the last delivered event (`core.log.timeline`); timers
become recorded leaves.
It cannot do I/O: each of those methods refuses, with the advice to put it in a step.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, NoReturn, cast

from buoy.core.ids import LeafId
from buoy.engine.authoring.context import CallScope
from buoy.engine.code.async_generators import Generators
from buoy.engine.code.io_guard import make_guard
from buoy.engine.code.loop_context import RunningLoop
from buoy.errors import Detached, NotAllowedHere

if TYPE_CHECKING:
    from buoy.engine.code.async_decider import AsyncDecider

# One drain that needs more turns than this does not wait for anything: it spins.
TURNS = range(1_000_000)
# Beyond every time that a person means (the year 5138).
NEVER = 1e11
CLOSES_MAX = 1_000
# How often dropped code gets the error that says so.
REFUSALS_MAX = 100
_UNDROPPABLE: list[Any] = []


class ScopedTask(asyncio.Task[Any]):
    """A concurrent part of the workflow. Its scope comes from the part that made it.

    It hashes by its place in the run, not by its address: `for task in done` must go in the same order at every replay.
    """

    def __init__(
        self, coro: Coroutine[Any, Any, Any], loop: PrivateLoop, name: str | None, scope: CallScope, context: Context
    ):
        self.buoy_scope = scope
        self.buoy_context = context
        self._hash = hash(loop.next_number())
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other


class PrivateLoop(asyncio.AbstractEventLoop):
    """A deterministic event loop for one run."""

    def __init__(self, host: AsyncDecider) -> None:
        make_guard()
        self._host = host
        # While this lasts, asyncio in this thread is this loop's, and I/O is refused.
        self.entered = RunningLoop(self)
        self.ready: deque[asyncio.Handle] = deque()
        self.root = CallScope()
        self._timers: dict[int, LeafId] = {}
        self.seed = 0
        self._made = 0
        self._refused = 0
        self._closed = False
        self.clock = 0.0
        self.errors: tuple[str, ...] = ()
        self._main: ScopedTask | None = None
        # The concurrent parts that have not ended. Most workflows have none.
        self._parts: set[ScopedTask] | None = None
        self._generators: Generators | None = None

    # What asyncio needs of a loop.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.clock + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if math.isnan(when):
            raise ValueError("a timer needs a time")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        leaf = self.scope().next_leaf("timer")
        if when > NEVER:
            return handle  # it never fires, so there is nothing to record
        self._timers[id(handle)] = leaf
        self._host.timer_started(leaf, when, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        leaf = self._timers.pop(id(handle), None)
        if leaf is not None:
            self._host.timer_cancelled(leaf)

    def time(self) -> float:
        return self.clock

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any) -> Any:
        if self._closed:
            coro.close()
            if self.hopeless():
                return self.create_future()
            raise Detached("this run is no longer driven here")
        within = copy_context() if context is None else context
        task = ScopedTask(cast("Coroutine[Any, Any, Any]", coro), self, name, self.scope().next_part(), within)
        self._host.only_scope = None
        parts = self._parts = self._parts or set()
        parts.add(task)
        task.add_done_callback(parts.discard)
        return task

    def hopeless(self) -> bool:
        """Whether dropped code swallows every refusal. It is given something that never comes, else it would turn in
        a circle, and with it this process."""
        self._refused += 1
        return self._refused > REFUSALS_MAX

    def next_number(self) -> int:
        """For hashes: spread over runs, since asyncio keeps the tasks of all of them in one set."""
        self._made += 1
        return self.seed + self._made * 7919

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors += (f"{context.get('message', 'error')}: {error!r}",)

    async def shutdown_asyncgens(self) -> None:
        return

    # What the executor does with it.

    def start(self, coro: Coroutine[Any, Any, Any], context: Context) -> ScopedTask:
        """The workflow's main task, in the root scope."""
        main = self._main = ScopedTask(coro, self, "workflow", self.root, context)
        return main

    def scope(self) -> CallScope:
        """The scope of the code that is running now."""
        task = asyncio.current_task(self)
        return task.buoy_scope if isinstance(task, ScopedTask) else self.root

    def fire(self, handle: asyncio.TimerHandle) -> None:
        """A recorded timer is due."""
        self._timers.pop(id(handle), None)
        if not handle.cancelled():
            self.ready.append(handle)

    def drain(self) -> None:
        """Runs workflow code until it waits for something that is not there yet. Inside of `entered` only."""
        ready = self.ready
        for _ in TURNS:
            if not ready:
                return
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                # `Handle._run`, without a call more for every wait of workflow code.
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
            except (SystemExit, KeyboardInterrupt) as error:
                # The task that raised it has it as its outcome; it must not end the runner.
                if from_the_keyboard(error):
                    raise
                self.errors += (f"workflow code tried to end the process: {error!r}",)
            except BaseException as error:  # noqa: BLE001 - a callback of the user's; reported, as asyncio does
                self.errors += (f"error in callback {handle!r}: {error!r}",)
        raise NotAllowedHere("the workflow's code never waits for anything: it turns in a loop without a durable call")

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An async generator was left before its end: its `finally` belongs to the workflow too."""
        if self._closed:
            return
        if asyncio._get_running_loop() is self:
            self.create_task(generator.aclose())
        else:
            # The garbage collector found it in a cycle while something else ran, and comes at another time at a replay.
            self.errors += (f"the `finally` of {generator!r} did not run: leave it with contextlib.aclosing(...)",)

    def abandon(self) -> None:
        """Drops all code that still waits. Its `finally` parts run, but can record nothing any more."""
        self._closed = True
        self.ready.clear()
        outer = asyncio._get_running_loop()
        # Tasks that a `finally` creates here must not become tasks of the real loop.
        asyncio._set_running_loop(self)
        try:
            for task in [*filter(None, (self._main,)), *(self._parts or ())]:
                task._log_destroy_pending = False
                self._close(task)
        finally:
            asyncio._set_running_loop(outer)
        self._main = self._parts = None
        if self._generators is not None:
            self._generators.forget()

    @property
    def buoy_generators(self) -> Generators:
        """The async generators that began on this loop. Made for the first one: most workflows have none."""
        if self._generators is None:
            self._generators = Generators(self._close_generator)
        return self._generators

    def objected(self, error: BaseException, *, refused: bool) -> None:
        """Code raised when it was dropped. `refused`: it caught that it was, and waits again."""
        self.errors += (f"while dropped: {error!r}",)

    def _close(self, task: ScopedTask) -> None:
        """Closes a coroutine for good. One that waits again in a `finally` moves on by one wait with every close."""
        coro = task.get_coro()
        for _ in range(CLOSES_MAX):
            try:
                if coro is not None:
                    # In the task's own context: there a durable call finds itself detached. Elsewhere it would be
                    # taken for a plain call, and a step in a `finally` would really run.
                    task.buoy_context.run(coro.close)
                return
            except Detached:
                continue  # a durable call in a `finally`: as it should be
            except BaseException as error:  # noqa: BLE001 - user code that objects to being dropped has no say
                # Code that caught Python's GeneratorExit still has a frame, and stands at its next wait.
                self.objected(error, refused=getattr(coro, "cr_frame", None) is not None)
        # Never let Python collect it: it would be closed once more, outside of its context.
        _UNDROPPABLE.append(coro)


def from_the_keyboard(error: BaseException) -> bool:
    """Whether asyncio raised it for a second Ctrl-C. Otherwise the workflow's own code raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "asyncio.runners"


def _refuse(name: str) -> Any:
    def refused(self: PrivateLoop, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotAllowedHere(
            f"workflow code may not do I/O or leave its loop (loop.{name}): put it in a step, whose result is recorded"
        )

    return refused


_REFUSED = """
    run_forever run_until_complete stop close call_soon_threadsafe run_in_executor set_default_executor getaddrinfo
    getnameinfo create_connection create_server sendfile start_tls create_unix_connection create_unix_server
    connect_accepted_socket create_datagram_endpoint connect_read_pipe connect_write_pipe subprocess_shell
    subprocess_exec add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into sock_recvfrom
    sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept sock_sendfile add_signal_handler
    remove_signal_handler set_task_factory get_task_factory set_debug shutdown_default_executor
"""
for _name in _REFUSED.split():
    setattr(PrivateLoop, _name, _refuse(_name))
