"""Deference: leaves a run to a living runner that has the very version of the code to which the run is bound.

Invariants: it is left as it was found, with the due time, the cause and the evidence of its task, so that the other
need not come at the right moment, nor go by this one's clock; this runner keeps its hands off it for some seconds,
then looks whether the other is still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.spec import is_spec
from buoy.ports import Released, RunnerInfo, Task

if TYPE_CHECKING:
    from buoy.core.ids import RunId
    from buoy.engine.execution import Execution
    from buoy.engine.intake import Holder

_LEFT_S = 5.0
# For who got nothing but runs that it leaves to others.
LEFT_PAUSE_S = 0.25


class Deference:
    """What one runner leaves to others."""

    def __init__(self, runner: Holder) -> None:
        self._runner = runner
        self._until: dict[RunId, float] = {}

    async def leave(self, task: Task, execution: Execution) -> bool:
        """Whether somebody fits better, and the run was left to them."""
        if not await self._somebody_fits_better(execution):
            return False
        self._until[task.run_id] = self._runner.clock.monotonic() + _LEFT_S
        self._give_back(task)
        return True

    def leave_again(self, task: Task) -> bool:
        """Whether a run that was just claimed is one that was left to others a moment ago."""
        until = self._until.get(task.run_id)
        if until is None:
            return False
        if self._runner.clock.monotonic() >= until:
            del self._until[task.run_id]
            return False
        self._give_back(task)
        return True

    def _give_back(self, task: Task) -> None:
        change = Released(due_at=task.due_at, cause=task.cause, evidence=task.evidence, by_clock=task.by_clock)
        self._runner.releases.add(task.run_id, change)

    async def _somebody_fits_better(self, execution: Execution) -> bool:
        bound, name = execution.state.version, execution.workflow.name
        if not bound or bound == execution.workflow.version or is_spec(name):
            return False
        return any(
            bound in record.info.workflows.get(name, ()) and _serves(record.info, execution)
            for record in await self._runner.store.runners()
            if record.info.id != self._runner.id
        )


def _serves(info: RunnerInfo, execution: Execution) -> bool:
    created = execution.state.created
    return (
        info.role == "worker"
        and created is not None
        and created.queue in info.queues
        and info.env == created.env
        and (info.stack is None or created.stack is None or info.stack == created.stack)
    )
