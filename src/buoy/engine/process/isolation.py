"""Solo: runs that have ended their processes again and again, driven one at a time while nothing else is.

Invariants: before such a run is claimed, its runner gives back what rests and lets what executes come to an end; it
claims nothing meanwhile. The run is alone until it makes progress, rests or ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from buoy.ports.records import Released, Task

if TYPE_CHECKING:
    from buoy.core.ids import RunId
    from buoy.engine.process.intake import Holder

# So long others of this runner may go on executing; then a runner that is free may be quicker.
_PATIENCE_S = 60.0
_AWAY_S = 5.0


class IsolationSlot:
    """Whose turn it is."""

    def __init__(self, runner: Holder) -> None:
        self._runner = runner
        self._waiting: deque[Task] = deque()
        self._since: float = 0.0
        self._alone: tuple[RunId, int] | None = None

    @property
    def wanted(self) -> bool:
        """Whether this runner must not take other work now."""
        return bool(self._waiting) or self._alone is not None

    def __contains__(self, run_id: RunId) -> bool:
        return any(task.run_id == run_id for task in self._waiting)

    def wait(self, task: Task) -> None:
        """This one wants to be alone."""
        if not self._waiting:
            self._since = self._runner.clock.monotonic()
        self._waiting.append(task)

    def next(self) -> Task | None:
        """The run that may be claimed now, for nothing else is driven."""
        if self._still_alone():
            return None
        runner = self._runner
        if runner.executions:
            runner.give_back_resting()
        if not runner.executions and self._waiting:
            self._since = runner.clock.monotonic()
            return self._waiting.popleft()
        if self._waiting and runner.clock.monotonic() - self._since > _PATIENCE_S:
            self._leave()
        return None

    def begun(self, run_id: RunId) -> None:
        execution = self._runner.executions.get(run_id)
        if execution is not None:
            self._alone = (run_id, execution.state.ended.get("completed", 0))

    def _still_alone(self) -> bool:
        if self._alone is None:
            return False
        run_id, completed = self._alone
        execution = self._runner.executions.get(run_id)
        if execution is None or execution.state.ended.get("completed", 0) > completed or execution.at_rest:
            self._alone = None
        return self._alone is not None

    def _leave(self) -> None:
        """Others execute here for too long."""
        now = self._runner.clock.now()
        while self._waiting:
            task = self._waiting.popleft()
            change = Released(due_at=now + _AWAY_S, now=now, cause=task.cause, evidence=task.evidence)
            self._runner.releases.add(task.run_id, change)
