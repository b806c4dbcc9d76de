"""The log lines of recovery: one for each run that was brought back, with the facts beside the text."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import pytest

from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.ports.records import Held
from buoy.recovery.recover import recover_run
from buoy.recovery.sweep.reconcile import reconcile
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from tests.core.logbook import claimed, completed, started

from .harness import KINDS, RecoveryHarness, created, play
from .test_sweep import NOW, UNDER_WAY, left_behind


def lines(caplog: pytest.LogCaptureFixture) -> dict[str, logging.LogRecord]:
    """By run; a run that is logged twice fails."""
    told = [each for each in caplog.records if each.name == "buoy.recovery"]
    found = {str(getattr(each, "run_id", "")): each for each in told}
    assert len(found) == len(told), [each.getMessage() for each in told]
    return found


def fact(record: logging.LogRecord, name: str) -> Any:
    return getattr(record, name)


@pytest.fixture(autouse=True)
def _informed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="buoy.recovery")


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_tells_each_run_once_and_a_second_one_tells_nothing(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        await sweep(harness.client, SweepOptions(stale_after_s=0.0, dry_run=True))
        assert lines(caplog) == {}
        await sweep(harness.client, NOW)
        found = lines(caplog)
        actions = {run: fact(each, "action") for run, each in found.items()}
        assert actions == {f"to-{policy}": policy for policy in ("resume", "restart", "fail", "hold")}
        assert {each.levelname for each in found.values()} == {"INFO"}
        assert {fact(each, "finding") for each in found.values()} == {"H1"}
        assert found["to-resume"].getMessage().startswith("Recovered run to-resume (resume): H1: runner r1")
        caplog.clear()
        await sweep(harness.client, NOW)
        assert lines(caplog) == {}

    play(tmp_path, test, kind)


def test_a_line_names_the_branch_and_the_event_that_it_was_cut_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        bodies = (created(), claimed("r1"), started("a#1"), completed("a#1"))
        await harness.plant("a1", *bodies, lie={"status": Status.AWAITING_INPUT})
        done = await recover_run(harness.client, "a1")
        (line,) = lines(caplog).values()
        assert line.getMessage() == f"Recovered run a1 (resume): {done.reason}. Created branch 1 from event 4"
        facts = ("run_id", "workflow", "finding", "new_branch", "previous_branch", "cutoff_event", "actor", "error")
        assert [fact(line, name) for name in facts] == ["a1", "order", "A1", 1, 0, 4, "sweeper-1", None]

    play(tmp_path, test)


def test_orphans_and_lost_wake_ups_are_told_as_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("held", created(), *UNDER_WAY, task=Held(cast(Any, "never-registered")))
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=harness.clock.now() - 100.0)
        await harness.plant("late", created(), claimed("r1"), timer)
        await sweep(harness.client)
        assert {run: fact(each, "finding") for run, each in lines(caplog).items()} == {"held": "Q3"}
        caplog.clear()
        await reconcile(harness.client)
        assert {run: fact(each, "finding") for run, each in lines(caplog).items()} == {"late": "Q4"}

    play(tmp_path, test)


def test_what_was_not_recovered_is_not_told_as_recovered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "odd", created("no-such-policy"), *UNDER_WAY)
        await harness.plant("fine", created(), *UNDER_WAY, task=Held(await harness.runner("living")))
        assert (await recover_run(harness.client, "odd")).action == "skip"
        await recover_run(harness.client, "fine")
        assert lines(caplog) == {}

    play(tmp_path, test)


def test_a_recovery_of_several_remedies_is_one_line_with_the_branch_that_it_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.runner("able", workflows={"order": ("",)})
        bodies = (created(), claimed("r1"), started("a#1"), completed("a#1"))
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "both", *bodies, lie={"status": Status.AWAITING_INPUT})
        done = await recover_run(harness.client, "both")
        (line,) = lines(caplog).values()
        assert fact(line, "new_branch") == done.new_branch_id == 1
        assert "Created branch 1" in line.getMessage()

    play(tmp_path, test)
