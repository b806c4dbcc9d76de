"""Isolation: drives a run that keeps crashing its worker while this runner drives nothing else.

Invariants: before such a run is claimed, its runner gives back what rests and lets what executes come to an end; it
claims nothing in between. The run stays alone until it makes progress, rests or ends. A back-off is not a rest: its
next attempt may crash the process, so the run is given back and is judged again when that attempt is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from buoy.engine.run.run_time import still_carrying
from buoy.ports.records import Released, Task

if TYPE_CHECKING:
    from buoy.core.ids import RunId, RunnerId
    from buoy.engine.process.runner import Runner
    from buoy.engine.run.execution import Execution

# How long other runs of this runner may finish their steps. After that a free runner may be quicker.
_PATIENCE_S = 60.0
_AWAY_S = 5.0


class Waiting(NamedTuple):
    """A run that has to be alone. `free_of`: see `Intake.take`; empty if this runner claimed the task."""

    task: Task
    free_of: Sequence[RunnerId | None]


class IsolationSlot:
    """Decides which isolated run may be driven now."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._waiting: deque[Waiting] = deque()
        self._since: float = 0.0
        self._alone: tuple[RunId, int] | None = None
        # Whether the runner claims due tasks: a run that is given back then returns by itself.
        self.takes_work = True

    @property
    def wanted(self) -> bool:
        """Whether this runner must not take other work now."""
        return bool(self._waiting) or self._alone is not None

    def __contains__(self, run_id: RunId) -> bool:
        return any(each.task.run_id == run_id for each in self._waiting)

    def wait(self, task: Task, free_of: Sequence[RunnerId | None]) -> None:
        """Queues a run that wants to be alone, once."""
        if task.run_id in self:
            return
        if not self._waiting:
            self._since = self._runner.clock.monotonic()
        self._waiting.append(Waiting(task, free_of))

    def next(self) -> Waiting | None:
        """The run that may be claimed now, because nothing else is driven."""
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
        if execution is None or execution.state.ended.get("completed", 0) > completed or self._rests(execution):
            self._alone = None
        return self._alone is not None

    def _rests(self, execution: Execution) -> bool:
        """Whether nothing of it executes before a message comes, or before a time that is not near."""
        if not execution.at_rest or self._runner.wakes_soon(execution):
            return False
        if _backs_off(execution):
            return self.takes_work and self._runner.give_back(execution.run_id)
        return True

    def _leave(self) -> None:
        """Whether other runs have executed here for too long."""
        now = self._runner.clock.now()
        while self._waiting:
            task, free_of = self._waiting.popleft()
            if free_of:
                continue  # the store does not name this runner as holder: there is nothing to give back
            change = Released(due_at=now + _AWAY_S, now=now, cause=task.cause, evidence=still_carrying(task))
            self._runner.releases.add(task.run_id, change)


def _backs_off(execution: Execution) -> bool:
    """Whether a step or an undoing waits for its next attempt."""
    return any(leaf.phase == "retrying" for leaf in execution.state.open.values())
