"""Saga: undoes the completed steps of a run, the last one first, before the run ends in failure or cancellation.

Invariants: each attempt of a compensation is recorded before it starts and when it ends, under one key. So a crash
during the attempt or its back-off changes neither the attempt nor the time of the next one. A step that may still have
its effect is ended first. Errors are collected: a compensation that fails does not keep the others from being tried.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import LeafId
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.transitions import compensation_leaf
from buoy.engine.authoring.definitions import Step
from buoy.engine.run.step_attempt import Failure, Success
from buoy.engine.services.timers import Timer

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


class Compensable(msgspec.Struct):
    """A step that can be undone, with what its compensation will be called with."""

    step: Step[..., Any]
    args: msgspec.Raw
    result: msgspec.Raw = e.NULL


class Saga:
    """The way of one run from its error to its end."""

    def __init__(self, execution: Execution, ending: e.Ending) -> None:
        self._execution = execution
        self._ending = ending
        self._under_way: LeafId | None = None
        self._timer: Timer | None = None

    @property
    def busy(self) -> bool:
        return self._under_way is not None

    def begin(self) -> None:
        """The code has ended: what it left open is given up, except for steps that must be known to have ended."""
        execution = self._execution
        for leaf in list(execution.state.open.values()):
            if leaf.kind != "compensation" and leaf.id not in execution.leaves.compensable:
                execution.cancel_leaf(leaf.id)
        self.advance()

    def advance(self) -> None:
        """Starts the next compensation, or ends the run when none is left."""
        execution = self._execution
        if self.busy or execution.detached or execution.delivery_paused:
            return
        if self._steps_open():
            # Of unknown outcome, perhaps left by another process: they are ended first, under their keys.
            execution.leaves.take_up()
            return
        leaf = self._next()
        if leaf is None:
            execution.close(self._with_errors())
            return
        undoing = execution.state.open.get(compensation_leaf(leaf))
        if undoing is None:
            self._start(leaf, 1)
        elif undoing.due_at is not None:
            self._wait(leaf, undoing.due_at)
        else:  # a process ended in the middle of this attempt
            self._take_up(leaf)

    def call_back(self) -> None:
        """Takes back a compensation that was about to start; `advance` starts it later."""
        if self._under_way is not None and self._execution.leaves.take_back(compensation_leaf(self._under_way)):
            self._under_way = None

    def _start(self, leaf: LeafId, attempt: int) -> None:
        self._execution.record(e.CompensationStarted(leaf=leaf, key=self._key(leaf), attempt=attempt))
        self._take_up(leaf)

    def _take_up(self, leaf: LeafId) -> None:
        self._under_way = leaf
        self._execution.after_commit(lambda: self._run(leaf))

    def _wait(self, leaf: LeafId, due_at: float) -> None:
        """Until the back-off that the log has is over."""
        if self._timer is None:
            execution = self._execution
            due = partial(execution.turn, self._due, leaf)
            self._timer = execution.host.timers.set(execution.ledger.here(due_at), due)

    def _due(self, leaf: LeafId) -> None:
        self._timer = None
        execution = self._execution
        undoing = execution.state.open.get(compensation_leaf(leaf))
        if not self.busy and not execution.delivery_paused and undoing is not None and undoing.due_at is not None:
            self._start(leaf, undoing.attempt + 1)

    def _steps_open(self) -> bool:
        return any(leaf.kind == "step" for leaf in self._execution.state.open.values())

    def _next(self) -> LeafId | None:
        """The completed step that ended last and is not undone yet."""
        state = self._execution.state
        left: list[Leaf] = []
        for leaf_id in self._execution.leaves.compensable:
            leaf, undone = state.leaves.get(leaf_id), state.leaves.get(compensation_leaf(leaf_id))
            if (
                leaf is not None
                and leaf.phase == "completed"
                and (undone is None or undone.phase in ("open", "retrying"))
            ):
                left.append(leaf)
        return max(left, key=lambda each: each.ended_seq).id if left else None

    def _key(self, leaf: LeafId) -> str:
        return self._execution.state.key(leaf) + "/compensation"

    def _run(self, leaf: LeafId) -> None:
        execution = self._execution
        if self._under_way != leaf or execution.detached:
            return
        if execution.delivery_paused:
            self._under_way = None
            return
        if execution.leaves.resuming:
            execution.after_commit(lambda: self._run(leaf))
            return
        done = execution.leaves.compensable[leaf]
        undo = done.step.compensate
        assert undo is not None
        execution.leaves.run_compensation(
            compensation_leaf(leaf),
            undo,
            _arguments(undo, done),
            self._key(leaf),
            execution.state.leaves[compensation_leaf(leaf)].attempt,
            lambda outcome: self._ran(leaf, undo, outcome),
        )

    def _ran(self, leaf: LeafId, undo: Step[..., Any], outcome: Success | Failure) -> None:
        execution = self._execution
        attempt = execution.state.leaves[compensation_leaf(leaf)].attempt
        self._under_way = None
        if isinstance(outcome, Success):
            execution.record(e.CompensationCompleted(leaf=leaf))
        elif outcome.error.retryable and attempt <= undo.retry.retries:
            due_at = execution.ledger.now() + undo.retry.delay_s(attempt)
            scheduled = e.CompensationRetryScheduled(leaf=leaf, attempt=attempt, due_at=due_at, error=outcome.error)
            execution.record(scheduled)
        else:
            execution.record(e.CompensationFailed(leaf=leaf, error=outcome.error))
        self.advance()

    def _with_errors(self) -> e.Ending:
        """The end that the code asked for, with what could not be undone."""
        leaves = self._execution.state.leaves
        failed = [
            f"{leaf} could not be undone: {undone.error}"
            for leaf in self._execution.leaves.compensable
            if (undone := leaves.get(compensation_leaf(leaf))) is not None and undone.error is not None
        ]
        if not failed:
            return self._ending
        text = "; ".join(failed)
        if isinstance(self._ending, e.WorkflowFailed):
            error = self._ending.error
            more = msgspec.structs.replace(error, message=f"{error.message}; {text}")
            return msgspec.structs.replace(self._ending, error=more)
        # A cancellation that leaves effects behind is no clean end.
        return e.WorkflowFailed(error=e.ErrorInfo(type="CompensationFailed", message=text, kind="permanent"))


def _arguments(undo: Step[..., Any], done: Compensable) -> msgspec.Raw:
    """By name: what is named like a parameter of the step gets its argument; `result`, or the one left, the result."""
    given: dict[str, msgspec.Raw] = codec.decode(done.args, dict[str, msgspec.Raw], "stored arguments")
    named = {name: given[name] for name in undo.arguments.names if name in given}
    left = [name for name in undo.arguments.required if name not in named]
    if len(left) == 1:
        named[left[0]] = done.result
    elif "result" in undo.arguments.names:
        named["result"] = done.result
    return codec.encode(named, f"the arguments of compensation {undo.name}")
