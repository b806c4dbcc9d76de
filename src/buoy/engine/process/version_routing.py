"""Version routing: leaves a run to a living runner that has exactly the version of the code to which the run is bound.
A runner whose own version is known not to fit leaves it to any other version that was not tried.

Invariants: the task is left as it was found, with its cause and its evidence. A task that this runner's clock found due
is left as due at once, with the time of its run: the other's clock may be hours behind. This runner keeps its hands off
the task for some seconds, then looks whether the other is still there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.spec.model import is_spec
from buoy.engine.run.run_time import carried, carrying
from buoy.ports.records import Released, RunnerInfo, Task

if TYPE_CHECKING:
    from buoy.core.ids import RunId
    from buoy.core.log.state import State
    from buoy.engine.authoring.definitions import Workflow
    from buoy.engine.process.runner import Runner

_LEFT_S = 5.0
# For a runner that got only runs that it leaves to others.
LEFT_PAUSE_S = 0.25


class VersionRouter:
    """The runs that one runner leaves to others."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._until: dict[RunId, float] = {}

    async def leave(self, task: Task, workflow: Workflow[..., Any], state: State) -> bool:
        """Leaves the run to a runner whose version fits better, if there is one; says whether it did."""
        if not await self._fits_another_better(workflow, state):
            return False
        now = self._runner.clock.monotonic()
        self._forget(now)
        self._until.pop(task.run_id, None)
        self._until[task.run_id] = now + _LEFT_S
        self._give_back(_due_for_all(task, max(self._runner.clock.now(), state.updated_at)))
        return True

    def _forget(self, now: float) -> None:
        """Drops entries of runs that others took and that never come back here. The oldest come first."""
        while self._until and (oldest := next(iter(self._until.items())))[1] <= now:
            del self._until[oldest[0]]

    def recently_deferred(self, task: Task) -> bool:
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
        # Both by the store's clock: it comes back as it was.
        change = Released(
            due_at=float(task.due_at),
            now=float(task.claimed_at),
            cause=task.cause,
            evidence=task.evidence,
            by_clock=task.by_clock,
        )
        self._runner.releases.add(task.run_id, change)

    async def _fits_another_better(self, workflow: Workflow[..., Any], state: State) -> bool:
        bound, name = state.version, workflow.name
        if not bound or bound == workflow.version or is_spec(name):
            return False
        worse = state.misfits if workflow.version in state.misfits else ()
        return any(
            _has_better(record.info.workflows.get(name, ()), bound, worse) and _serves(record.info, state)
            for record in await self._runner.store.runners()
            if record.info.id != self._runner.id
        )


def _due_for_all(task: Task, run_now: float) -> Task:
    """Makes the task due at once: the better runner's clock may be hours behind this one's."""
    if not task.by_clock:
        return task
    bare, dated_at = carried(task)
    run_time = max(run_now, dated_at or 0.0)
    return msgspec.structs.replace(bare, evidence={**bare.evidence, **carrying(run_time)}, by_clock=False)


def _has_better(versions: Collection[str], bound: str, worse: Collection[str]) -> bool:
    return bound in versions or (bool(worse) and any(version not in worse for version in versions))


def _serves(info: RunnerInfo, state: State) -> bool:
    created = state.created
    return (
        info.role == "worker"
        and created is not None
        and created.queue in info.queues
        and info.env == created.env
        and (info.stack is None or created.stack is None or info.stack == created.stack)
    )
