"""The sync decider: a plain function as workflow, in a thread of the pool.

A durable call whose outcome is known returns it. Else the thread asks the loop and waits while steps execute. For
longer waits the code leaves its thread by `Suspended`, and runs again from its start when the outcome is there.
Invariant: the code is sequential, so the outcome of each call depends on its identity alone, not on the order of
events. Without a pool (simulation) the code runs inline and suspends at every unknown outcome.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.engine.authoring.context import CURRENT, CallScope, Request
from buoy.engine.code.io_guard import guarded, unguarded
from buoy.engine.code.protocol import RunRecorder
from buoy.engine.code.replay import OUTCOMES, outcome_of
from buoy.engine.code.sync_cancel import SyncCancel, sent_off
from buoy.engine.services.thread_pool import ThreadPool
from buoy.errors import Cancelled, Detached, Diverged, NotAllowedHere, Problem, Suspended

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Step

Reply = Literal["go", "suspend", "cancel", "detach"]
_SHORT = frozenset({"step"})  # a thread waits for steps only; everything else may take months
_CAUGHT = "the workflow's code caught buoy.Suspended, by which it waits; catch Exception, never BaseException"


class SyncDecider:
    """A sync workflow. Also the context of its durable calls, which come from its thread."""

    is_async = False
    only_scope: CallScope | None = None

    def __init__(
        self, execution: RunRecorder, fn: Any, args: list[Any], kwargs: dict[str, Any], pool: ThreadPool | None
    ) -> None:
        self.run_id = execution.run_id
        self._execution = execution
        self._code = partial(fn, *args, **kwargs)
        self._pool = pool
        self._known: dict[LeafId, tuple[Any, float]] = {}
        self._started_at = 0.0
        self._detached = self._running = self._ended = False
        self._waiting: frozenset[LeafId] = frozenset()
        self._reply: queue.SimpleQueue[Reply | Problem] = queue.SimpleQueue()
        self._blocked = False
        self._cancel = SyncCancel(execution)
        self._scope, self._clock = CallScope(), 0.0  # of the thread that runs the code now
        self._leaving = False
        self._difference: Diverged | None = None
        self._held_back = False  # the run was paused while the code ran: it starts again when the run is resumed

    # As a decider, on the loop's thread.

    @property
    def busy(self) -> bool:
        return self._running and not self._blocked

    def begin(self, at: float) -> None:
        self._started_at = at
        self._launch()

    async def replay(self, events: Sequence[e.Event], at: float) -> None:
        for event in events:
            if isinstance(event.body, OUTCOMES):
                self._known[event.body.leaf] = (event.body, event.at)
                self._cancel.outcome(event.body.leaf)
            elif isinstance(event.body, e.CancelRequested):
                self._cancel.request()
        # The thread compares the code with the log as it goes; nothing is left to be delivered.
        self._execution.replaying = False
        self.begin(at)

    def deliver(self, leaf: LeafId, outcome: Any, at: float) -> None:
        self._known[leaf] = (outcome, at)
        self._cancel.outcome(leaf)
        if self._waiting and self._waiting <= self._known.keys():
            self._wake("go")

    def cancel(self, at: float) -> None:
        self._cancel.request()
        if not self._waiting:
            return
        for leaf in sorted(self._waiting - self._known.keys()):
            self._execution.cancel_leaf(leaf)
        self._wake("cancel")

    def resume_code(self) -> None:
        if self._held_back and not self._running:
            self._launch()

    @property
    def is_cut_off(self) -> bool:
        return self._detached and not self._ended

    def detach(self) -> None:
        self._detached = True
        if self._blocked:
            self._wake("detach")

    def _wake(self, reply: Reply) -> None:
        """What the code waited for is there: wakes its thread, or starts the code again if it left its thread."""
        if self._blocked:
            self._blocked = False
            self._waiting = frozenset()
            self._reply.put(reply)
        elif not self._running:
            self._waiting = frozenset()
            self._launch()

    def _launch(self) -> None:
        if self._detached or self._ended:
            return
        self._running = True
        self._held_back = self._leaving = False
        self._scope, self._clock, self._cancel.seen = CallScope(), self._started_at, False
        self._execution.history.begin_again()
        if self._pool is None:
            self._left(self._run_code())
            return
        loop, pool, context = asyncio.get_running_loop(), self._pool, copy_context()

        def work() -> None:
            outcome = context.run(self._run_code)
            loop.call_soon_threadsafe(self._left, outcome, pool)

        self._loop = loop
        pool.submit(work)

    def _left(self, outcome: tuple[Any, BaseException | None], pool: ThreadPool | None = None) -> None:
        """The code has left its thread: it ended, or waits for something longer."""
        if pool is not None:
            pool.done()
        self._running = False
        if not self._detached:
            self._execution.turn(self._take_outcome, *outcome)

    def _take_outcome(self, value: Any, error: BaseException | None) -> None:
        if self._difference is not None:
            self._execution.diverged(self._difference)
        elif self._execution.delivery_paused:
            # Any result of the code can wait: it arrives at the same one again when the pause is over.
            self._held_back = True
        elif isinstance(error, Suspended):
            if self._held_back:
                self._launch()
            elif self._waiting <= self._known.keys() or self._cancel.pending:
                self._wake("go")
        else:
            self._finish(value, error)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        self._ended = True
        try:
            self._execution.history.finish()
        except Diverged as diverged:
            error = diverged
        if not isinstance(error, Diverged):
            self._execution.bind()
        if error is None:
            self._execution.code_returned(value)
        else:
            self._execution.code_raised(error)

    def _asked(self, requests: list[Request]) -> Reply | Problem:
        """On the loop: the thread asks for leaves. What it does next."""
        if self._detached:
            return "detach"
        if self._execution.delivery_paused:
            self._held_back = True
            return "suspend"
        try:
            if self._cancel.ends(requests):
                self._cancel.leave(requests)
                return "cancel"
            fits = self._check_order(requests)
            for request in requests:
                self._execution.open_leaf(request)
        except Detached:
            return "detach"
        except Problem as error:
            return error
        if fits:
            self._execution.bind()
        for request in requests:
            if (child := sent_off(request)) is not None:
                self._known[request.leaf] = (child, self._clock)
        missing = frozenset(request.leaf for request in requests if request.leaf not in self._known)
        if not missing:
            return "go"
        self._waiting = missing
        if self._pool is None or any(r.kind not in _SHORT for r in requests if r.leaf in missing):
            return "suspend"
        self._blocked = True
        return "go"

    def _check_order(self, requests: list[Request]) -> bool:
        """Sequential code asks for something new only after everything that its log has. Whether it does."""
        history = self._execution.history
        fresh = [request.leaf for request in requests if request.leaf not in history.started]
        if fresh:
            history.asked.update(request.leaf for request in requests)
            history.fresh.extend(fresh)
            history.finish()
        return bool(fresh)

    def _asked_by_thread(self, requests: list[Request]) -> None:
        if self._detached:
            return self._reply.put("detach")
        return self._execution.turn(self._reply_to_thread, requests)

    def _reply_to_thread(self, requests: list[Request]) -> None:
        reply: Reply | Problem = "detach"
        try:
            reply = self._asked(requests)
        finally:
            # Also after an unexpected error: a thread that waits for its reply forever is lost to the pool.
            if not self._blocked:
                self._reply.put(reply)

    # In the thread.

    def _run_code(self) -> tuple[Any, BaseException | None]:
        token = CURRENT.set(self)
        value = end = None
        try:
            with guarded():
                value = self._code()
        except BaseException as error:  # noqa: BLE001 - whatever the code raises is its end, and is recorded
            end = error
        CURRENT.reset(token)
        return value, NotAllowedHere(_CAUGHT) if self._leaving and not isinstance(end, Suspended) else end

    # As the context of durable calls, in the thread.

    def scope(self) -> CallScope:
        return self._scope

    def now(self) -> float:
        return self._clock

    def key(self, leaf: LeafId) -> str:
        return self._execution.state.key(leaf)

    def child_id(self, leaf: LeafId) -> RunId:
        return self._execution.state.child_id(leaf)

    def recall(self, leaf: LeafId, args: msgspec.Raw, step: Step[..., Any]) -> Any:
        raise NotImplementedError("sync code waits in `ask_for`, at a replay too")

    def ask_for(self, request: Request) -> Any:
        return self.ask_for_all([request])[0]

    def give_up(self, leaf: LeafId) -> None:
        raise NotImplementedError("sync code cannot give a leaf up")

    def ask_for_all(self, requests: list[Request]) -> list[Any]:
        if self._detached or self._difference is not None:
            raise Detached(f"run {self.run_id} is no longer driven here")
        if self._leaving:
            # A durable call in a `finally`, while the code leaves its thread: not now, when the code comes back.
            raise Suspended(f"run {self.run_id} waits")
        with unguarded():
            try:
                self._ask(requests)
            except Diverged as error:
                # Kept: user code must not be able to swallow it.
                self._difference = error
                raise Detached(str(error)) from error
            outcomes = [self._outcome(request) for request in requests]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes

    def _ask(self, requests: list[Request]) -> None:
        if any(request.leaf not in self._known for request in requests) or self._cancel.ended(requests):
            self._wait_for(requests)
        else:
            for request in requests:
                self._execution.history.match(request)
                self._execution.leaves.remember(request)

    def _wait_for(self, requests: list[Request]) -> None:
        if self._pool is None:
            reply = self._asked(requests)
        else:
            self._loop.call_soon_threadsafe(self._asked_by_thread, requests)
            reply = self._reply.get()
        if isinstance(reply, Problem):
            raise reply
        if reply == "suspend":
            self._leaving = True
            raise Suspended(f"run {self.run_id} waits")
        if reply == "cancel":
            self._cancel.seen = True
            raise Cancelled(self._cancel.reason)
        if reply == "detach":
            raise Detached(f"run {self.run_id} is no longer driven here")

    def _outcome(self, request: Request) -> Any:
        found, at = self._known[request.leaf]
        self._clock = max(self._clock, at)
        return outcome_of(found, request.returns, self._code.func) if isinstance(found, OUTCOMES) else found
