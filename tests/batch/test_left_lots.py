"""Lots of a cancelled run whose runner dies: a sweep ends them, though no other runner of jobs ever comes."""

from __future__ import annotations

import signal
from typing import Any

from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until


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
