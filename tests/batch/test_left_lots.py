"""Lots that end without a runner, because their run was cancelled: who ends them, and what a retry of the run finds."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until

# A program whose lots keep what has ended to themselves for ten minutes.
_SILENT = (
    "-c",
    "import buoy.engine.batch.lot_decider as lots; lots.JOBS_SEND_S = 600.0; from buoy.cli.main import main; main()",
)


def _lots(batch: Batch) -> list[str]:
    return [each["document"]["status"] for each in batch.json("ps", "--all", "--parent", "r1")["runs"]]


def test_a_lot_whose_runner_dies_after_the_cancellation_is_ended_by_a_sweep(batch: Batch) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "long", "run": "echo long >> witness; sleep 600"},
        {"id": "next", "needs": ["long"], "run": "true"},
    ]
    batch.submit({"name": "left", "steps": steps})
    worker = batch.process("worker", "--no-sweeper")  # it owns the run
    wait_until(lambda: len(_lots(batch)) == 1)
    runner = batch.runner()
    wait_until(lambda: batch.seen() == ["long"])
    # Halted, it cannot hear of the cancellation, as if its machine hung.
    runner.send_signal(signal.SIGSTOP)
    batch("cancel", "r1")
    wait_until(lambda: batch.json("show", "r1")["document"]["status"] == "cancelled")
    assert _lots(batch) != ["cancelled"]
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0
    runner.kill()
    runner.wait(PATIENCE_S)
    batch("sweeper", "--once")
    assert _lots(batch) == ["cancelled"]
    assert {job["status"] for job in batch.jobs().values()} == {"cancelled"}


def test_jobs_that_no_runner_had_are_offered_again_when_their_run_is_retried(batch: Batch) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "bad", "run": "test -e ok"},
        {"id": "wide", "run": "echo wide >> witness", "resources": {"cpus": 3}},
        {"id": "last", "needs": ["bad", "wide"], "run": "echo last >> witness"},
    ]
    batch.submit({"name": "left", "steps": steps})
    runner = batch.runner("--cpus", "2")
    wait_until(lambda: batch.jobs()["bad"]["status"] == "failed")
    assert "buoy reset r1 JOB" in batch("retry", "r1", "--yes", code=2)
    batch("cancel", "r1")
    assert runner.wait(PATIENCE_S) == 3
    assert sorted(_lots(batch)) == ["cancelled", "completed"]
    (batch.folder / "ok").touch()
    # What failed is found without its name, though the run did not end by it.
    batch("retry", "r1", "--yes")
    assert batch.runner("--cpus", "4").wait(PATIENCE_S) == 0
    assert batch.seen() == ["wide", "last"]


def test_a_job_that_completed_in_a_cancelled_lot_does_not_run_again(batch: Batch) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "long", "run": "echo long >> witness; test -e ok || sleep 600"},
        {"id": "quick", "needs": [], "run": "echo quick >> witness"},
    ]
    batch.submit({"name": "left", "steps": steps})
    worker = batch.process("worker", "--no-sweeper")
    wait_until(lambda: len(_lots(batch)) == 1)
    (lot,) = [each["document"]["run_id"] for each in batch.json("ps", "--all", "--parent", "r1")["runs"]]
    runner = batch.process("runner", "--run", "r1", "--cpus", "2", python=_SILENT)
    wait_until(lambda: "step_completed" in batch("events", lot))
    # Killed with what it had not told its run yet.
    runner.kill()
    runner.wait(PATIENCE_S)
    batch("cancel", "r1")
    wait_until(lambda: batch.json("show", "r1")["document"]["status"] == "cancelled")
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0
    batch("sweeper", "--once")
    assert _lots(batch) == ["cancelled"]
    (batch.folder / "ok").touch()
    batch("retry", "r1", "--from", "long", "--yes")
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    assert sorted(batch.seen()) == ["long", "long", "quick"]


def test_a_cancelled_lot_tells_what_had_ended_before_it_ends(batch: Batch) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "long", "run": "echo long >> witness; test -e ok || sleep 600"},
        {"id": "quick", "needs": [], "run": "while test ! -e go; do sleep 0.01; done; echo quick >> witness"},
    ]
    batch.submit({"name": "left", "steps": steps})
    runner = batch.process("runner", "--run", "r1", "--cpus", "2", python=_SILENT)
    wait_until(lambda: batch.seen() == ["long"])
    (batch.folder / "go").touch()
    wait_until(lambda: batch.seen() == ["long", "quick"])
    (lot,) = [each["document"]["run_id"] for each in batch.json("ps", "--all", "--parent", "r1")["runs"]]
    wait_until(lambda: "step_completed" in batch("events", lot))
    batch("cancel", "r1")
    assert runner.wait(PATIENCE_S) == 3
    assert _lots(batch) == ["cancelled"]
    (batch.folder / "ok").touch()
    batch("retry", "r1", "--from", "long", "--yes")
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    assert sorted(batch.seen()) == ["long", "long", "quick"]


@pytest.mark.parametrize("on_failure", ["hold", "fail"])
def test_jobs_that_ran_when_their_run_was_cancelled_run_again_when_it_is_retried(batch: Batch, on_failure: str) -> None:
    steps: list[dict[str, Any]] = [
        {"id": name, "needs": [], "run": f"echo {name} >> witness; test -e ok || sleep 600"} for name in ("a", "b", "c")
    ]
    batch.submit({"name": "left", "on_failure": on_failure, "steps": steps})
    runner = batch.runner("--cpus", "2")
    wait_until(lambda: sorted(batch.seen()) == ["a", "b"])
    batch("cancel", "r1")
    assert runner.wait(PATIENCE_S) == 3
    assert _lots(batch) == ["cancelled"]
    (batch.folder / "ok").touch()
    # The lot reported a and b as cancelled, and its run has not read that yet.
    batch("retry", "r1", "--from", "c", "--yes")
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    assert sorted(batch.seen()) == ["a", "a", "b", "b", "c"]
    assert {job["status"] for job in batch.jobs().values()} == {"completed"}
    assert "job_held" not in batch("events", "r1")
