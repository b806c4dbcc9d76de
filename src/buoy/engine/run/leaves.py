"""Leaves: starts, retries and ends the leaves of one execution.

Invariants: a body, a timer or a hand-over of a signal begins only after the commit that started its leaf; a leaf that
an earlier incarnation left open is taken up with the attempt and arguments that the log has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import LeafId, leaf_scope
from buoy.core.limits import LOG_EVENTS_MAX, SPEC_LOG_EVENTS_MAX
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.spec.model import is_spec
from buoy.engine.authoring.context import Request, StepContext
from buoy.engine.authoring.definitions import Step, Workflow
from buoy.engine.authoring.failures import step_failed
from buoy.engine.code.replay import BODIES
from buoy.engine.run.publications import Publications
from buoy.engine.run.saga import Compensable
from buoy.engine.run.step_attempt import BodyEnd, CutOff, Failure, Report, StepAttempt, Success, certain
from buoy.engine.run.step_spans import traced
from buoy.engine.services.timers import Timer
from buoy.errors import TooLarge
from buoy.ports.records import Progress

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


class Leaves:
    """The open leaves of one execution, with what belongs to them in this process."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._events_max = SPEC_LOG_EVENTS_MAX if is_spec(execution.workflow.name) else LOG_EVENTS_MAX
        self._steps: dict[LeafId, tuple[Step[..., Any], msgspec.Raw, str]] = {}
        # Steps that would be undone if the run failed; never given up before their outcome is known.
        self.compensable: dict[LeafId, Compensable] = {}
        self._children: dict[LeafId, tuple[Workflow[..., Any], e.ChildStarted]] = {}
        self._returns: dict[LeafId, Any] = {}
        self._bodies: dict[LeafId, StepAttempt] = {}
        # Abandoned bodies whose threads still run. Nothing waits for their outcomes.
        self._lingering: set[StepAttempt] | None = None
        self._timers: dict[LeafId, Timer] = {}
        self._resumed_seq = 0
        self._publications = Publications(execution)

    @property
    def resuming(self) -> bool:
        """Whether `resumed` is recorded but not durable: by its log the run is still paused, so no body may start."""
        return self._execution.ledger.durable_seq < self._resumed_seq

    @property
    def executing(self) -> bool:
        """Whether a step's body is under way in this process."""
        return bool(self._bodies) or bool(self._lingering)

    def carried_by(self, task: asyncio.Task[Any] | None) -> LeafId | None:
        """The step whose body this task executes."""
        return next((leaf for leaf, body in list(self._bodies.items()) if body.task is task and task is not None), None)

    def open(self, request: Request, *, in_log: bool) -> None:
        """The code asks for a leaf. One that the log has open is taken up, a new one is recorded."""
        execution, leaf, step, started = self._execution, request.leaf, request.step, request.started
        if in_log and execution.replaying and leaf not in execution.state.open and _is_over(request):
            return
        if step is not None:
            if in_log:
                args, key = execution.history.call_of(request)
            else:
                assert isinstance(started, BODIES)
                args, key = started.args, started.key
            self._steps[leaf] = (step, args, key)
            if step.compensate is not None:
                result = execution.history.results.get(leaf, e.NULL)
                self.compensable[leaf] = Compensable(step, args, result)
        if not in_log:
            if execution.state.head_seq >= self._events_max:
                raise TooLarge(
                    f"the log of run {execution.run_id} has reached {self._events_max:,} events; "
                    "start a new run for what is left to do"
                )
            execution.ledger.record(started)
            if not execution.history.over:
                execution.history.add(request)
        if request.workflow is not None and isinstance(started, e.ChildStarted):
            there = execution.history.started.get(leaf) if in_log else None
            # As the log has it: the code may have other defaults by now.
            self._children[leaf] = (request.workflow, there if isinstance(there, e.ChildStarted) else started)
            self._returns[leaf] = request.returns
            if started.detach:
                # Also at replay: the crash may have come before it was created.
                execution.after_commit(lambda: self._start_child(leaf))
        if not execution.replaying:
            opened = execution.state.open.get(leaf)
            if opened is not None:
                execution.ledger.after_commit(partial(self._start, opened, opened.attempt))

    def remember(self, request: Request) -> None:
        """A step that would have to be undone, whether it is to be run or its outcome is known."""
        if request.step is None or request.step.compensate is None or request.leaf in self.compensable:
            return
        (args, _), results = self._execution.history.call_of(request), self._execution.history.results
        self.compensable[request.leaf] = Compensable(request.step, args, results.get(request.leaf, e.NULL))

    def resume(self) -> None:
        """The run was paused: everything starts when the events recorded so far, `resumed` among them, are durable."""
        self._resumed_seq = self._execution.state.head_seq
        self.take_up()

    def take_up(self) -> None:
        """Continues every open leaf that the code asked for and that nothing moves yet."""
        for leaf in list(self._execution.state.open.values()):
            if leaf.kind in ("compensation", "job"):
                continue  # the saga's, or a runner's
            if leaf.kind not in ("step", "module", "child") or leaf.id in self._steps or leaf.id in self._children:
                self._start_later(leaf)

    def _start_later(self, leaf: Leaf) -> None:
        """Starts the attempt once everything recorded so far is durable. A later attempt has a start of its own."""
        self._execution.after_commit(partial(self._start, leaf, leaf.attempt))

    def _start(self, leaf: Leaf, attempt: int) -> None:
        execution, which, kind = self._execution, leaf.id, leaf.kind
        moves = which in self._bodies or which in self._timers
        if moves or leaf.attempt != attempt or which not in execution.state.open:
            return
        if kind == "child":
            self._start_child(which)  # no user code runs for it, so not even a pause or a stop keeps it back
            execution.mailbox.give_kept("" if leaf.child is None else leaf.child.child)
        if execution.delivery_paused:
            execution.has_undelivered = True
        elif self.resuming:
            return  # an older commit brought us here; `resume` has asked for a start after its own
        elif (kind == "step" or kind == "module") and leaf.phase == "open":
            self._run_body(leaf)
        elif kind == "ask":
            execution.mailbox.give_kept(leaf.question_id or "")
        elif kind == "signal" and execution.mailbox.give_signal(which, leaf.name):
            return
        elif leaf.due_at is not None:
            due = partial(execution.turn, self._due, leaf)
            self._timers[which] = execution.host.timers.set(execution.ledger.here(leaf.due_at), due)

    # children

    def returns_of(self, leaf: LeafId) -> Any:
        """The type of a child's result."""
        return self._returns.pop(leaf, Any)

    def _start_child(self, leaf: LeafId) -> None:
        """Asks for the child's creation; create-if-absent, so that asking again has no further effect."""
        workflow, started = self._children.pop(leaf, (None, None))
        if workflow is None or started is None:
            return
        self._execution.children.start(started, workflow)

    # steps

    def _run_body(self, leaf: Leaf) -> None:
        execution, which, attempt = self._execution, leaf.id, leaf.attempt
        host = execution.host
        step, args, key = self._steps[which]
        context = StepContext(execution.run_id, which, leaf.name, attempt, key, self)
        done: Report = partial(execution.turn, self._body_done, leaf)
        if host.spans is not None:
            done = traced(host.spans, context, done)
        body = self._bodies[which] = StepAttempt(step, context, done)
        body.start(args, host.step_tasks, host.step_pool)

    def run_compensation(
        self,
        leaf: LeafId,
        step: Step[..., Any],
        args: msgspec.Raw,
        key: str,
        attempt: int,
        report: Callable[[Success | Failure], None],
    ) -> None:
        """The body that undoes a step."""
        execution = self._execution

        def done(outcome: BodyEnd) -> None:
            self._bodies.pop(leaf, None)
            self._let_go(leaf, body)
            report(certain(outcome))

        context = StepContext(execution.run_id, leaf, step.name, attempt, key, self)
        body = StepAttempt(step, context, partial(execution.turn, done))
        self._bodies[leaf] = body
        body.start(args, execution.host.step_tasks, execution.host.step_pool)

    def published(self, item: e.PublishedItem) -> None:
        self._publications.add(item)

    def progressed(self, leaf: LeafId, done: float | None, total: float | None, note: str) -> None:
        host = self._execution.host
        progress = Progress(at=host.clock.now(), done=done, total=total, note=note, leaf=leaf)
        host.progressed(self._execution.run_id, progress)

    def _body_done(self, leaf: Leaf, end: BodyEnd) -> None:
        execution, which = self._execution, leaf.id
        body = self._bodies.pop(which, None)
        if type(end) is Failure and body is not None:
            self._let_go(which, body)
        if self._publications.waiting:
            self._publications.record()  # in one commit with the outcome, and before it
        if which not in execution.state.open:
            return
        if type(end) is CutOff:
            # The leaf stays open in the log; the next owner of the run starts the same attempt again.
            execution.has_undelivered = True
            return
        outcome = certain(end)
        if type(outcome) is Success:
            del self._steps[which]
            if which in self.compensable:
                self.compensable[which].result = outcome.stored
            ends = e.ModuleCompleted if leaf.kind == "module" else e.StepCompleted
            execution.settle(ends(which, outcome.stored, leaf.attempt), outcome.value)
        elif type(outcome) is Failure:
            self._failed(leaf, outcome.error)

    def _failed(self, leaf: Leaf, error: e.ErrorInfo) -> None:
        execution = self._execution
        retry = self._steps[leaf.id][0].retry
        if error.retryable and leaf.attempt <= retry.retries:
            due_at = execution.ledger.now() + retry.delay_s(leaf.attempt)
            execution.record(e.RetryScheduled(leaf=leaf.id, attempt=leaf.attempt, due_at=due_at, error=error))
            self._start_later(leaf)
        else:
            del self._steps[leaf.id]
            ends = e.ModuleFailed if leaf.kind == "module" else e.StepFailed
            failed = ends(leaf=leaf.id, error=error, attempt=leaf.attempt)
            execution.settle(failed, step_failed(failed, execution.workflow.fn))

    # times

    def _due(self, leaf: Leaf) -> None:
        execution = self._execution
        self._timers.pop(leaf.id, None)
        if leaf.id not in execution.state.open or execution.delivery_paused:
            return
        match leaf.kind:
            case "timer":
                execution.settle(e.TimerFired(leaf=leaf.id), None)
            case "signal":
                late = e.SignalReceived(leaf=leaf.id, message=None)
                execution.settle(late, TimeoutError(f"no signal came in time for {leaf.id}"))
            case _:
                _, args, key = self._steps[leaf.id]
                execution.record(_next_attempt(leaf, args, key))
                self._start_later(leaf)

    # ends

    def drop(self, leaf: LeafId) -> None:
        """Stops a leaf that the code no longer waits for."""
        self._steps.pop(leaf, None)
        body = self._bodies.pop(leaf, None)
        if body is not None:
            body.give_up()
            self._let_go(leaf, body)
        if (timer := self._timers.pop(leaf, None)) is not None:
            timer.cancel()

    def _let_go(self, leaf: LeafId, body: StepAttempt) -> None:
        """Abandons a body. If its thread still runs, the run counts as executing until the thread ends."""
        if body.acts:
            execution = self._execution
            acting = self._lingering = self._lingering or set()
            acting.add(body)
            over = partial(execution.turn, acting.discard, body)
            execution.host.lingering.add(body, f"step {leaf} of run {execution.run_id}", over)

    def call_back(self) -> None:
        """Takes back the steps that were about to start."""
        for leaf in [each for each in self._bodies if each in self._steps and each in self._execution.state.open]:
            self.take_back(leaf)

    def take_back(self, leaf: LeafId, *, wanted: bool = True) -> bool:
        """Whether that body was about to start, and will not. `wanted`: it starts later, here or elsewhere."""
        if leaf not in self._bodies or not self._bodies[leaf].call_back():
            return False
        del self._bodies[leaf]
        self._execution.has_undelivered |= wanted
        return True

    def cancel_async(self) -> None:
        """Cancels the async bodies; each counts as executing until its task has really ended."""
        for leaf, body in list(self._bodies.items()):
            if self.take_back(leaf):
                continue
            body.give_up()
            if body.task is not None:
                body.task.add_done_callback(lambda _, leaf=leaf: self._bodies.pop(leaf, None))  # type: ignore[misc]

    def drop_all(self) -> None:
        for leaf in [*self._bodies, *self._timers]:
            self.drop(leaf)


def _is_over(request: Request) -> bool:
    """Whether a leaf that has its outcome in the log needs nothing more: no undoing, no child to start."""
    return request.workflow is None and (request.step is None or request.step.compensate is None)


def _next_attempt(leaf: Leaf, args: msgspec.Raw, key: str) -> e.StepStarted | e.ModuleStarted:
    attempt = leaf.attempt + 1
    if leaf.kind == "module":
        step = leaf_scope(leaf.id)
        return e.ModuleStarted(leaf=leaf.id, step=step, module=leaf.name, attempt=attempt, args=args, key=key)
    return e.StepStarted(leaf=leaf.id, name=leaf.name, attempt=attempt, args=args, key=key)
