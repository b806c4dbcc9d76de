"""Children: pending requests to create and to cancel child runs. The run stays in memory until they are durable."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.engine.run.owed import child_creation

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Workflow
    from buoy.engine.run.execution import Execution


# Shared by all runs without children, which are most.
_NONE: frozenset[RunId] = frozenset()


class Children:
    """The children of one execution: pending requests, and the children that certainly exist."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._pending = 0
        self.certain: set[RunId] | frozenset[RunId] = _NONE

    @property
    def busy(self) -> bool:
        return self._pending > 0

    def start(self, started: e.ChildStarted, workflow: Workflow[..., Any] | None) -> None:
        """Asks for a child's creation; create-if-absent, so that asking again has no further effect."""
        execution = self._execution
        self._pending += 1
        assert execution.state.created is not None
        creation = child_creation(execution.run_id, execution.state.created, started)
        done = partial(execution.turn, self._done, started.child)
        execution.host.outbox.want(started.child, creation, done, workflow)

    def give_up(self, leaf: LeafId) -> None:
        """Asks a child to cancel, since its parent no longer waits for it."""
        self._cancel(self._execution.state.child_id(leaf))

    def _cancel(self, child: RunId) -> None:
        execution = self._execution
        self._pending += 1
        execution.host.outbox.cancel(child, execution.run_id, partial(execution.turn, self._done, child))

    def catch_up(self) -> None:
        """After a takeover: does what a crash or a later branch left undone for children without a waiting parent."""
        execution, state = self._execution, self._execution.state
        for leaf in state.leaves.values():
            if leaf.kind == "child" and leaf.phase == "cancelled":
                execution.after_commit(partial(self.give_up, leaf.id))
        for started in state.left_children():
            if started.detach:
                execution.after_commit(partial(self.start, started, None))
            elif started.child != state.child_id(started.leaf):  # else the code may start the same one again
                execution.after_commit(partial(self._cancel, started.child))

    def _done(self, child: RunId, error: Exception | None) -> None:
        self._pending -= 1
        if error is not None:
            raise error
        if isinstance(self.certain, frozenset):
            self.certain = set()
        self.certain.add(child)
