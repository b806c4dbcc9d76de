"""The watch: sees every body of a step, what workflow code does that it should not, and what it swallows.

How: during a crash test it replaces three parts of the engine: `Body` (a step under way), the drain
of the private loop, and the deciders. It changes nothing that they do, except for steps with a canned result, and
for dropped code that would never stop asking.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec

from buoy.core.ids import LeafId
from buoy.engine.authoring.context import Request, StepContext
from buoy.engine.authoring.definitions import Step
from buoy.engine.code.async_decider import AsyncDecider
from buoy.engine.code.private_loop import PrivateLoop
from buoy.engine.code.sync_decider import SyncDecider
from buoy.engine.run import leaves
from buoy.engine.run.step_attempt import Failure, Report, StepAttempt, Success
from buoy.engine.services.step_tasks import StepTasks
from buoy.engine.services.thread_pool import ThreadPool
from buoy.engine.spec.commands import Commander
from buoy.errors import Suspended
from buoy.testing.crashtest.code_watch import CodeWatch, call_patches
from buoy.testing.crashtest.notes import COMMAND, Note, What

_WAIT_S = 10.0
_REFUSALS_MAX = 100


class _Watched(StepContext):
    """A step's context that notices when the step looks at its key."""

    on_key: Any = None

    def __getattribute__(self, name: str) -> Any:
        if name == "key":
            on_key = super().__getattribute__("on_key")
            if on_key is not None:
                on_key()
        return super().__getattribute__(name)


class BodyWatch:
    """Everything that is seen in one scenario. `process` is the number of the process that runs now."""

    def __init__(self, add: Callable[[Note], None], now: Callable[[], float], stubs: Mapping[str, Any]) -> None:
        self._add = add
        self._now = now
        self.stubs = stubs
        self.process = 0
        self.looks_at_code = True
        # False: bodies of steps never begin, so that a replay acts on nothing.
        self.executes = True
        self._threads = 0
        self._quiet = threading.Condition()
        self.code = CodeWatch(self.tell, now)

    def tell(self, what: What, **facts: Any) -> None:
        self._add(Note(what, self.process, real_s=self._now(), **facts))

    # ---- threads of sync steps

    def thread_began(self) -> None:
        with self._quiet:
            self._threads += 1

    def thread_ended(self) -> None:
        with self._quiet:
            self._threads -= 1
            self._quiet.notify_all()

    @property
    def threads_at_work(self) -> bool:
        return self._threads > 0

    def wait_for_threads(self) -> bool:
        """A thread cannot be killed: a crash in this process waits for those of steps. False: one does not end."""
        with self._quiet:
            return self._quiet.wait_for(lambda: self._threads == 0, _WAIT_S)


def _watched_body(watch: BodyWatch) -> type[StepAttempt]:
    class WatchedBody(StepAttempt):
        def __init__(self, step: Step[..., Any], context: StepContext, report: Report) -> None:
            facts = {"run": context.run_id, "leaf": context.leaf, "step": step.name, "attempt": context.attempt}
            command = isinstance(getattr(step.fn, "__self__", None), Commander)
            self._facts = {**facts, "key": context.key, "text": COMMAND if command else ""}
            self._threaded = False
            seen = _Watched(*(getattr(context, name) for name in StepContext.__struct_fields__))
            # A command always gets its key; its shell knows whether it looks at it.
            seen.on_key = None if command else lambda: watch.tell("key", **self._facts)
            super().__init__(step, seen, report)

        def start(self, raw: msgspec.Raw, step_tasks: StepTasks, pool: ThreadPool | None) -> None:
            if not watch.executes:
                return
            stub = watch.stubs.get(self._step.name, watch)
            watch.tell("body" if stub is watch else "stubbed", **self._facts)
            if stub is watch:
                super().start(raw, step_tasks, pool)
            else:
                asyncio.get_running_loop().call_soon(lambda: self._finish(self._success(stub)))

        def _start_sync(self, pool: ThreadPool, *args: Any, **kwargs: Any) -> None:
            self._threaded = True
            watch.thread_began()
            super()._start_sync(pool, *args, **kwargs)

        def _withdraw(self) -> bool:
            """A body that is taken back before it begins never gets to its thread."""
            withdrawn = super()._withdraw()
            if withdrawn and self._threaded:
                watch.thread_ended()
            return withdrawn

        def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Success | Failure:
            try:
                return super()._call(args, kwargs)
            finally:
                if self._threaded:
                    watch.thread_ended()

    return WatchedBody


_Patch = tuple[Any, str, Any]


def _async_patches(watch: BodyWatch) -> list[_Patch]:
    drain, ask_for, timer_started = PrivateLoop.drain, AsyncDecider.ask_for, AsyncDecider.timer_started
    objected = PrivateLoop.objected
    refusals: Counter[int] = Counter()

    def heard(loop: PrivateLoop, error: BaseException, *, refused: bool) -> None:
        if refused:
            watch.tell("swallowed", caught="GeneratorExit, with which Python ends code that is no longer wanted")
        objected(loop, error, refused=refused)

    def drained(loop: PrivateLoop) -> None:
        with _profiled(watch, sync=False):
            drain(loop)

    def hopeless(decider: AsyncDecider) -> bool:
        """Code that was dropped and asks again and again: it catches every refusal. So it is left waiting for good."""
        refusals[id(decider)] += decider._detached
        return decider._detached and refusals[id(decider)] > _REFUSALS_MAX

    def asked(decider: AsyncDecider, request: Request) -> asyncio.Future[Any]:
        return asyncio.Future(loop=decider._loop) if hopeless(decider) else ask_for(decider, request)

    def timed(decider: AsyncDecider, leaf: LeafId, when: float, handle: asyncio.TimerHandle) -> None:
        if not hopeless(decider):
            timer_started(decider, leaf, when, handle)

    return [
        (PrivateLoop, "drain", drained),
        (PrivateLoop, "objected", heard),
        (AsyncDecider, "ask_for", asked),
        (AsyncDecider, "timer_started", timed),
    ]


def _sync_patches(watch: BodyWatch) -> list[_Patch]:
    left, run_code = SyncDecider._left, SyncDecider._run_code

    def ran(decider: SyncDecider) -> tuple[Any, BaseException | None]:
        with _profiled(watch, sync=True):
            return run_code(decider)

    def has_left(
        decider: SyncDecider, outcome: tuple[Any, BaseException | None], pool: ThreadPool | None = None
    ) -> None:
        if decider._leaving and not isinstance(outcome[1], Suspended):
            watch.tell("swallowed", run=decider.run_id, caught="buoy.Suspended, with which sync code leaves its thread")
        left(decider, outcome, pool)

    return [(SyncDecider, "_left", has_left), (SyncDecider, "_run_code", ran)]


@contextmanager
def watching(watch: BodyWatch) -> Iterator[None]:
    """Inside, the engine is watched."""
    patches: list[_Patch] = [
        (leaves, "StepAttempt", _watched_body(watch)),
        *_async_patches(watch),
        *_sync_patches(watch),
    ]
    if watch.looks_at_code:
        patches += call_patches(watch.code)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        watch.code.note_forgotten()


def _profiled(watch: BodyWatch, *, sync: bool) -> AbstractContextManager[None]:
    return watch.code.profiled(sync=sync) if watch.looks_at_code else nullcontext()
