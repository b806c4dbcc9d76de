"""Deciders: the ways to run workflow code. Each asks an execution for leaves and receives their outcomes.

This module has the async decider. It runs the code on its private loop, in the thread of the process's own loop,
between two outcomes. `engine.code.sync_decider` runs plain functions, `engine.spec.decider` runs specs.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import current_task
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

import msgspec

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.events import StepCompleted, StepStarted
from buoy.core.log.timeline import DELIVERED
from buoy.engine.authoring.context import CURRENT, UNKNOWN, CallScope, Request
from buoy.engine.code.private_loop import PrivateLoop, ScopedTask
from buoy.engine.code.protocol import RunRecorder
from buoy.engine.code.replay import Ended, outcome_of, replay_in_slices
from buoy.errors import Detached, Diverged

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Step

_LOG = logging.getLogger("buoy.workflow")
# Shared by all runs that are not in a replay; never added to.
_NOTHING: deque[e.Event] = deque(maxlen=0)
# Events that are gone through before a replay looks at the clock.
_SLICE = 256


class AsyncDecider:
    """An async workflow on its private loop. Also the context of its durable calls."""

    is_async = True

    def __init__(self, execution: RunRecorder, coro_fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.run_id = execution.run_id
        self._execution = execution
        self._fn = coro_fn
        self._given: tuple[list[Any], dict[str, Any]] | None = (args, kwargs)
        self._loop = PrivateLoop(self)  # type: ignore[abstract]
        self.only_scope: CallScope | None = self._loop.root
        self._futures: dict[LeafId, asyncio.Future[Any]] = {}
        self._handles: dict[LeafId, asyncio.TimerHandle] = {}
        self._main: ScopedTask | None = None
        self._detached = self.is_cut_off = False
        self._returns: dict[LeafId, Any] = {}
        # Of a replay: what comes next in the log.
        self._ahead = _NOTHING
        self._difference: Diverged | None = None

    # As a decider.

    @property
    def busy(self) -> bool:
        return False

    def begin(self, at: float) -> None:
        self._loop.clock = at
        # The log has it, so it is the same at every replay; and it spreads the tasks of different runs.
        self._loop.seed = hash(self._execution.state.created_at)
        context = copy_context()
        context.run(CURRENT.set, self)
        assert self._given is not None, "code begins once"
        args, kwargs = self._given
        self._given = None
        # The coroutine is made inside the context, so that durable calls in default arguments find it too.
        coro = context.run(self._fn, *args, **kwargs)
        self._main = self._loop.start(coro, context)
        self._drain()

    async def replay(self, events: Sequence[e.Event], at: float) -> None:
        execution = self._execution
        self.begin(at)
        await replay_in_slices(events, execution.clock, self._replay_some, _SLICE)
        self._returns.clear()
        self._ahead = _NOTHING
        # Every call of async code is asked for once: what the log had is needed no longer.
        execution.history.forget()

    def _replay_some(self, events: Sequence[e.Event]) -> None:
        history, returns = self._execution.history, self._returns
        ahead = self._ahead = deque([event for event in events if type(event.body) in DELIVERED])
        with self._loop.entered:
            while ahead:
                event = ahead.popleft()
                if type(event.body) is e.CancelRequested:
                    self._request_cancel(event.at)
                else:
                    ended = cast(Ended, event.body)
                    if ended.leaf in history.kept and ended.leaf not in history.asked:
                        history.answers[ended.leaf] = outcome_of(ended, Any, self._fn)
                        continue
                    history.need(event, ended.leaf)
                    self._set(ended.leaf, outcome_of(ended, returns.pop(ended.leaf, Any), self._fn), event.at)
                self._run()

    def deliver(self, leaf: LeafId, outcome: Any, at: float) -> None:
        self._set(leaf, outcome, at)
        with self._loop.entered:
            self._run()

    def _set(self, leaf: LeafId, outcome: Any, at: float) -> None:
        """Gives a leaf its outcome; the code sees it when it runs."""
        self._loop.clock = at
        future = self._futures.pop(leaf, None)
        if future is not None:
            if not future.done():
                _settle(future, outcome)
        elif leaf in self._handles:
            self._loop.fire(self._handles.pop(leaf))

    def cancel(self, at: float) -> None:
        self._request_cancel(at)
        self._drain()

    def _request_cancel(self, at: float) -> None:
        self._loop.clock = at
        if self._main is not None:
            self._main.cancel()

    def resume_code(self) -> None:
        """Async code only ever runs when something is delivered to it."""

    def check_pending(self) -> None:
        """After a replay: what the code waits for must be open in the log."""
        for leaf in [*self._futures, *self._handles]:
            if leaf not in self._execution.state.open:
                text = f"the log has {leaf} as given up, but the code still waits for it"
                raise Diverged(text, log_leaf=leaf, code_leaf=leaf)

    def detach(self) -> None:
        self._detached = True
        self.is_cut_off = self._main is not None and not self._main.done()
        self._ahead = _NOTHING
        self._loop.abandon()
        self._report_errors()
        self._futures.clear()
        self._handles.clear()

    def _drain(self) -> None:
        with self._loop.entered:
            self._run()

    def _run(self) -> None:
        """Runs the code until it waits. Its end is reported, as is what it did otherwise than its log."""
        self._loop.drain()
        if self._difference is not None:
            raise self._difference
        if self._loop.errors:
            self._report_errors()
        main = self._main
        if main is None or not main.done() or self._detached:
            return
        self._main = None
        if main.cancelled():
            self._execution.code_raised(asyncio.CancelledError())
            return
        error = main.exception()
        if error is None:
            self._execution.code_returned(main.result())
        else:
            self._execution.code_raised(error)

    def _report_errors(self) -> None:
        """Logs what asyncio found wrong in the workflow's code, such as a task whose error was never retrieved."""
        for text in self._loop.errors:
            _LOG.warning("run %s: %s", self.run_id, text)
        self._loop.errors = ()

    # As the context of durable calls.

    def now(self) -> float:
        return self._loop.clock

    def scope(self) -> CallScope:
        return self._loop.scope()

    def key(self, leaf: LeafId) -> str:
        return self._execution.state.key(leaf)

    def child_id(self, leaf: LeafId) -> RunId:
        return self._execution.state.child_id(leaf)

    def recall(self, leaf: LeafId, args: msgspec.Raw, step: Step[..., Any]) -> Any:
        """At a replay: the result of a completed step as soon as the code asks for it, if the code cannot tell the
        difference. Else `UNKNOWN`.

        That holds if this outcome is the next one in the log and no other part of the code can move before it. Then the
        code would only wait, receive it and continue. Most calls of most workflows are like that. They skip a future, a
        turn of the loop and the execution: without that a replay takes 50 % longer (`benchmarks/speed_tricks.py`).
        """
        ahead, execution = self._ahead, self._execution
        if not ahead:
            return UNKNOWN
        event, history = ahead[0], execution.history
        ended, there = event.body, history.started.get(leaf)
        if type(ended) is not StepCompleted or ended.leaf != leaf or leaf in execution.state.open:
            return UNKNOWN
        if type(there) is not StepStarted or there.args != args:
            return UNKNOWN
        if step.compensate is not None or step.queue is not None:
            return UNKNOWN  # it may be undone later, or runs elsewhere
        loop = self._loop
        task = current_task(loop)
        if loop.ready or task is None or task._must_cancel:  # type: ignore[attr-defined]
            return UNKNOWN
        try:
            found = step.arguments.read_result(ended.result)
        except BaseException:  # noqa: BLE001 - raised again where the code cannot catch it
            return UNKNOWN
        history.asked.add(leaf)
        ahead.popleft()
        loop.clock = event.at
        return found

    def ask_for(self, request: Request) -> asyncio.Future[Any]:
        if self._detached:
            return self._refuse()
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        leaf, execution = request.leaf, self._execution
        if leaf in execution.history.answers:
            execution.history.match(request)
            future.set_result(execution.history.answers.pop(leaf))
            return future
        self._open(request)
        if type(request.started) is e.ChildStarted and request.started.detach:
            # The parent does not wait for a detached child: its start is its outcome.
            future.set_result(request.started.child)
        else:
            self._futures[leaf] = future
            if execution.replaying:
                self._returns[leaf] = request.returns
        return future

    def _refuse(self) -> asyncio.Future[Any]:
        """Raises an error in dropped code that asks for something. If the code swallows it too often, never answers."""
        if not self._loop.hopeless():
            raise Detached(f"run {self.run_id} is no longer driven here")
        return asyncio.Future(loop=self._loop)

    def _open(self, request: Request) -> None:
        """A difference from the log is kept: user code must not be able to swallow it."""
        try:
            self._execution.open_leaf(request)
        except Diverged as error:
            self._difference = self._difference or error
            self._ahead = _NOTHING
            raise Detached(str(error)) from error

    def ask_for_all(self, requests: list[Request]) -> list[Any]:
        raise NotImplementedError("async workflows use asyncio.gather")

    def give_up(self, leaf: LeafId) -> None:
        if self._futures.pop(leaf, None) is not None and not self._detached:
            self._execution.cancel_leaf(leaf)

    # As the host of the loop's timers.

    def timer_started(self, leaf: LeafId, when: float, handle: asyncio.TimerHandle) -> None:
        if self._detached:
            self._refuse()
            return
        self._handles[leaf] = handle
        self._open(Request(leaf, "timer", e.TimerStarted(leaf=leaf, due_at=when)))

    def timer_cancelled(self, leaf: LeafId) -> None:
        if self._handles.pop(leaf, None) is not None and not self._detached:
            self._execution.cancel_leaf(leaf)


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
