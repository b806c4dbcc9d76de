"""How often a log is folded: long logs make every further time cost seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.core.diagnosis import case
from buoy.core.ids import RunId
from buoy.core.log import append, state
from buoy.core.log import events as e
from buoy.core.log.state import State
from buoy.core.remedy import plan
from buoy.engine.process import intake
from buoy.engine.run import execution
from buoy.recovery import evidence
from buoy.recovery.recover import recover_run
from tests.core.logbook import claimed, completed, started
from tests.engine.harness import plant, result_of, store_at
from tests.patience import PATIENCE_S

from .harness import RecoveryHarness, created, play

FOLDING = (append, case, evidence, execution, intake, plan)


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each log that was folded."""
    found: list[int] = []

    def counted(run_id: RunId, log: Sequence[e.Event]) -> State:
        found.append(len(log))
        return state.fold(run_id, log)

    for module in FOLDING:
        monkeypatch.setattr(module, "fold", counted)
    return found


@buoy.step
async def work() -> str:
    return "done"


@buoy.workflow
async def works() -> str:
    return await work()


def test_a_takeover_folds_the_log_once(tmp_path: Path, folds: list[int]) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    log = [
        e.Event(1, 100.0, e.WorkflowCreated(workflow="works", input=msgspec.Raw(b"{}"))),
        e.Event(2, 100.0, claimed("dead")),
        e.Event(3, 100.0, started("work#1")),
    ]

    async def test() -> None:
        async with store_at(url) as store:
            await plant(store, "run", log, cause="taken_over")
        folds.clear()
        async with asyncio.timeout(PATIENCE_S), buoy.open(url, workflows=[works]) as app:
            assert await result_of(app, await app.get("run")) == "done"

    asyncio.run(test())
    assert folds == [3]


def test_a_recovery_that_finds_nothing_folds_the_log_once(tmp_path: Path, folds: list[int]) -> None:
    async def test(harness: RecoveryHarness) -> None:
        alive = await harness.runner("r1")
        await harness.left_by(alive, "run", created(), claimed("r1"), started("a#1"), completed("a#1"), started("b#1"))
        folds.clear()
        assert not (await recover_run(harness.client, "run")).needed

    play(tmp_path, test)
    assert folds == [5]
