"""What a runner remembers is bounded, however long it lives and whatever comes by."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any, cast

import msgspec

import buoy
from buoy.core.ids import RunId, orchestrate_task_id
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import State
from buoy.engine.process.version_routing import VersionRouter
from buoy.engine.process.waiters import ENDS_KEPT_BYTES_MAX, Waiters
from buoy.ports.records import Task
from buoy.testing.clock import ManualClock

from .harness import opened, until

MIB = 2**20


def _end(number: int, size: int) -> tuple[State, e.Ending]:
    state = State(run_id=RunId(f"run-{number}"), status=Status.COMPLETED, head_seq=3)
    return state, e.WorkflowCompleted(result=msgspec.Raw(b'"' + b"x" * size + b'"'))


def test_kept_results_are_bounded_by_their_bytes() -> None:
    waiters = Waiters()
    for number in range(100):
        waiters.keep(*_end(number, MIB))
    kept = [number for number in range(100) if waiters.kept(RunId(f"run-{number}"), 3) is not None]
    assert kept == list(range(100 - len(kept), 100))
    assert 0 < len(kept) <= ENDS_KEPT_BYTES_MAX // MIB


def test_an_end_that_is_kept_again_counts_once() -> None:
    waiters = Waiters()
    for _ in range(100):
        waiters.keep(*_end(1, MIB))
    waiters.keep(*_end(2, 10))
    assert waiters.kept(RunId("run-1"), 3) is not None
    assert waiters.kept(RunId("run-2"), 3) is not None


class _Runner:
    """What a version router needs of a runner."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.releases = self
        self.given_back = 0

    def add(self, run_id: RunId, change: object) -> None:
        self.given_back += 1


class _LeavesAll(VersionRouter):
    async def _fits_another_better(self, workflow: Any, state: Any) -> bool:
        return True


async def test_runs_that_others_took_are_not_remembered_for_ever() -> None:
    runner = _Runner()
    router = _LeavesAll(cast(Any, runner))
    for number in range(200):
        run_id = RunId(f"run-{number}")
        task = Task(orchestrate_task_id(run_id, 1), run_id, "w", "default")
        assert await router.leave(task, cast(Any, None), State(run_id=run_id))
        assert router.recently_deferred(task)
        runner.clock.advance(1.0)
    assert len(router._until) <= 6


@buoy.workflow
async def waits_for_a_signal() -> Any:
    return await buoy.wait_signal("go")


async def test_a_live_run_is_few_objects_for_the_collector_to_go_through(tmp_path: Path) -> None:
    """With 58 for each waiting run the collector took a sixth of the processor time of 2,000 runs of 5 steps."""
    async with opened(f"sqlite:///{tmp_path}/buoy.db", waits_for_a_signal) as app:
        assert app.runner is not None
        counted: list[int] = []
        for so_far in (100, 300):
            here = so_far - len(app.runner.executions)
            await asyncio.gather(*(app.start(waits_for_a_signal) for _ in range(here)))
            await until(lambda many=so_far: len(app.runner._resting) == many, "all runs to wait")  # type: ignore[misc]
            gc.collect()
            counted.append(len(gc.get_objects()))
    assert (counted[1] - counted[0]) / 200 < 45
