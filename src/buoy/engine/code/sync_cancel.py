"""Sync cancel: which call of a sync workflow a cancel request ends, and what becomes of that call's leaves.

Invariants: the call that raises `Cancelled` is the same one at every replay, since log order alone decides; a step that
may have to be undone is never given up before its outcome is known.
"""

from __future__ import annotations

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.engine.authoring.context import Request
from buoy.engine.code.protocol import RunRecorder


class SyncCancel:
    """The cancel request of one run, as its code meets it."""

    def __init__(self, execution: RunRecorder) -> None:
        self._execution = execution
        self._requested = False
        # What came to its end after the cancel request.
        self._late: set[LeafId] = set()
        # Whether the code that runs now has met it.
        self.seen = False

    @property
    def pending(self) -> bool:
        """Whether the code has yet to meet it."""
        return self._requested and not self.seen

    @property
    def reason(self) -> str:
        """Why, as the request says."""
        requested = self._execution.state.cancel
        return (None if requested is None else requested.reason) or "the run was cancelled"

    def request(self) -> None:
        self._requested = True

    def outcome(self, leaf: LeafId) -> None:
        """A leaf came to its end."""
        if self._requested:
            self._late.add(leaf)

    def ended(self, requests: list[Request]) -> bool:
        """Whether it ended this call before: then the call raises again, though its outcomes are known by now."""
        if not self.pending:
            return False
        leaves = self._execution.state.leaves
        found = (leaves.get(request.leaf) for request in requests)
        return any(leaf is not None and (leaf.phase == "cancelled" or leaf.id in self._late) for leaf in found)

    def ends(self, requests: list[Request]) -> bool:
        """Whether it ends this call. If the log has the start of a detached child, the code continued after that."""
        started = self._execution.history.started
        return self.pending and not all(sent_off(request) and request.leaf in started for request in requests)

    def leave(self, requests: list[Request]) -> None:
        """Gives up what the log has open of this call. A step that can be undone is remembered, or goes to its end."""
        execution = self._execution
        for request in requests:
            if request.leaf in execution.state.open:
                execution.open_leaf(request)
                execution.cancel_leaf(request.leaf)
            elif request.leaf in execution.history.started:
                execution.history.match(request)
                execution.leaves.remember(request)


def sent_off(request: Request) -> RunId | None:
    """The detached child that this request starts. The parent does not wait for it."""
    started = request.started
    return started.child if isinstance(started, e.ChildStarted) and started.detach else None
