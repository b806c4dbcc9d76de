"""Kin: what a run asks for on behalf of its children. Until that is durable, the run must not be forgotten."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from buoy.core import events as e
from buoy.core.ids import LeafId, RunId
from buoy.engine.duties import birth_of

if TYPE_CHECKING:
    from buoy.engine.definitions import Workflow
    from buoy.engine.execution import Execution


class Kin:
    """The children of one execution: those to be made, to be told, and those that are certain."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._pending = 0
        self.certain: set[RunId] = set()

    @property
    def busy(self) -> bool:
        return self._pending > 0

    def bear(self, started: e.ChildStarted, workflow: Workflow[..., Any]) -> None:
        """Asks for a child's creation; create-if-absent, so that asking again does nothing more."""
        execution = self._execution
        self._pending += 1
        assert execution.state.created is not None
        birth = birth_of(execution.run_id, execution.state.created, started)
        done = partial(execution.turn, self._done, started.child)
        execution.host.births.want(started.child, birth, done, workflow)

    def give_up(self, leaf: LeafId) -> None:
        """Asks a child to cancel, since nobody waits for it any more."""
        execution = self._execution
        child = execution.state.child_id(leaf)
        self._pending += 1
        execution.host.births.cancel(child, execution.run_id, partial(execution.turn, self._done, child))

    def give_up_again(self) -> None:
        """After a take-over: the crash may have come before a child that was given up was told."""
        for leaf in self._execution.state.leaves.values():
            if leaf.kind == "child" and leaf.phase == "cancelled":
                self._execution.after_commit(lambda leaf=leaf: self.give_up(leaf.id))  # type: ignore[misc]

    def _done(self, child: RunId, error: Exception | None) -> None:
        self._pending -= 1
        if error is not None:
            raise error
        self.certain.add(child)
