"""Publications: what the steps of one run publish, on its way into the log.

Invariants: `add` may be called in any thread and returns at once. Values wait in memory within a bound, and those
beyond it are counted. The log has them in the order of the calls: in one commit with the outcome of the step that ends,
or in a commit of their own. No such commit is asked for while another one of the run is under way.
Absent on purpose: certainty. A crash loses the values that no commit has; the step runs again and publishes them again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from buoy.core.limits import (
    PUBLISH_S,
    PUBLISH_WAITING_BYTES_MAX,
    PUBLISH_WAITING_MAX,
    PUBLISHED_BYTES_MAX,
    PUBLISHED_EVENT_BYTES,
)
from buoy.core.log import events as e
from buoy.core.log.lifecycle import MOVES
from buoy.core.log.weight import item_bytes

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution

# Steps publish from several threads. One for all runs: it is held for some list operations only.
_ADDING = threading.Lock()


class Publications:
    """The values of one incarnation of a run that no commit has yet."""

    __slots__ = ("_armed", "_bytes", "_dropped", "_execution", "waiting")

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.waiting: list[e.PublishedItem] | None = None
        self._bytes = 0
        self._dropped = 0
        self._armed = False

    def add(self, item: e.PublishedItem) -> None:
        """Takes a value, in any thread."""
        size = item_bytes(item)
        with _ADDING:
            waiting = self.waiting = self.waiting or []
            if len(waiting) >= PUBLISH_WAITING_MAX or self._bytes + size > PUBLISH_WAITING_BYTES_MAX:
                self._dropped += 1
                return
            waiting.append(item)
            self._bytes += size
            armed, self._armed = self._armed, True
        if not armed:
            self._execution.host.step_tasks.on_loop(self._arm)

    def _arm(self) -> None:
        host = self._execution.host
        host.timers.set(host.clock.now() + PUBLISH_S, lambda: self._execution.turn(self._due))

    def _due(self) -> None:
        if self._execution.ledger.in_flight:
            self._execution.after_commit(self.record)
        else:
            self.record()

    def record(self) -> None:
        """Records what waits, inside the door of the run. A run that ended or that is full keeps nothing more."""
        with _ADDING:
            items, self.waiting = tuple(self.waiting or ()), None
            dropped, self._dropped = self._dropped, 0
            size, self._bytes = self._bytes, 0
            self._armed = False
        execution = self._execution
        state = execution.state
        if not items or state.status not in MOVES[e.Published] or state.published >= PUBLISHED_BYTES_MAX:
            return
        full = state.published + size + PUBLISHED_EVENT_BYTES >= PUBLISHED_BYTES_MAX
        execution.record(e.Published(items=items, claim=state.claims, dropped=dropped, full=full))
