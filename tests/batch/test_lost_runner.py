"""A batch run whose only runner was killed: lists and recoveries tell what `why` tells, and count what waits unread."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.batch.conftest import Batch
from tests.batch.slurm_plays import Played, played
from tests.patience import PATIENCE_S, wait_until

__all__ = ["played"]

HELD: list[dict[str, Any]] = [
    {"id": "a", "run": "true"},
    {"id": "b", "needs": ["a"], "run": "echo b >> witness; while [ ! -e go ]; do sleep 0.1; done"},
    {"id": "c", "needs": ["b"], "run": "true"},
]
FAILS: list[dict[str, Any]] = [{"id": "a", "run": "[ -e go ]"}]


def _killed(batch: Batch) -> None:
    batch.submit({"name": "held", "steps": HELD})
    runner = batch.runner()
    # Its start is in the log before its process is there.
    wait_until(lambda: batch.seen() == ["b"] and batch.jobs()["b"]["status"] == "running")
    runner.kill()
    runner.wait(PATIENCE_S)


def test_jobs_of_a_killed_runner_are_not_shown_as_running(batch: Batch) -> None:
    _killed(batch)
    found = batch.json("jobs", "r1")
    assert {job["job"]: job["status"] for job in found["jobs"]} == {
        "a": "completed", "b": "failed", "c": "blocked"
    }  # fmt: skip
    lost, waits = (next(job for job in found["jobs"] if job["job"] == name) for name in ("b", "c"))
    assert (lost["cause"], lost["host"]) == ("runner_lost", found["jobs"][0]["host"])
    assert (waits["blocked_by"], waits["blocker"]["cause"]) == ("b", "runner_lost")
    assert "lost with its runner" in batch("jobs", "r1", "--status", "blocked")
    assert [job["job"] for job in batch.json("jobs", "r1", "--status", "failed")["jobs"]] == ["b"]
    assert found["trouble"].startswith("dead: ")
    said = batch("jobs", "r1")
    assert "the run is dead: " in said
    assert "buoy why r1" in said


def test_a_watch_says_that_the_only_runner_is_dead(batch: Batch) -> None:
    _killed(batch)
    assert "1 failed" in (said := batch("watch", "r1", "--once", code=4))
    assert "the run is dead: " in said
    assert batch.json("watch", "r1", "--once", code=4)["trouble"].startswith("dead: ")


def test_a_recovery_names_the_job_that_runs_again_after_its_remedy(batch: Batch) -> None:
    _killed(batch)
    shown = batch("recover", "r1", "--dry-run")
    assert "it would be put back into its queue" in shown
    assert "b: its runner is gone; the next runner runs it again" in shown
    assert "nothing to do" not in shown
    batch("recover", "r1")
    (batch.folder / "go").touch()
    assert batch.runner().wait(PATIENCE_S) == 0
    assert batch.seen() == ["b", "b"]


def test_the_look_for_orphans_finds_jobs_of_a_killed_runner_that_is_in_no_allocation(played: Played) -> None:
    _killed(played)
    shown = played.json("sync-status", "r1", "--dry-run", code=1)["orphans"]
    assert [(each["code"], each.get("jobs"), each.get("cause")) for each in shown] == [
        ("J3", ["b"], "runner_lost"), ("J7", None, None)
    ]  # fmt: skip
    assert played.json("sync-status", "r1", "--dry-run", code=1)["orphans"] == shown, "a dry run corrected it"
    said = played("sync-status", "r1", code=1)
    assert "J3 runner" in said and "was lost; 1 job lost with it" in said
    assert [each["code"] for each in played.json("sync-status", "r1", code=1)["orphans"]] == ["J7"]
    assert (lost := played.jobs()["b"])["status"] == "failed" and lost["cause"] == "runner_lost", "until it runs again"
    assert "the next runner runs it again" in played("reset", "r1", "b", code=2)
    (played.folder / "go").touch()
    assert played.runner().wait(PATIENCE_S) == 0


def test_a_job_that_the_same_loss_ended_by_a_signal_is_lost_and_has_not_failed(batch: Batch) -> None:
    """A scheduler signals all processes of an allocation: a job may be gone before its runner is."""
    run = "echo $$ >> witness; while [ ! -e go ]; do sleep 0.1; done"
    batch.submit({"name": "lost", "steps": [{"id": "a", "run": run}]})
    runner = batch.runner()
    wait_until(lambda: len(batch.seen()) == 1, "the start")
    runner.send_signal(signal.SIGSTOP)
    job = int(batch.seen()[0])
    os.kill(job, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{job}").exists(), "the end of the job")
    runner.kill()
    runner.wait(PATIENCE_S)
    (batch.folder / "go").touch()
    assert batch.runner().wait(PATIENCE_S) == 0
    assert (len(batch.seen()), batch.jobs()["a"]["attempt"]) == (2, 1)


def test_a_reset_that_no_runner_has_read_is_not_sent_twice(batch: Batch) -> None:
    batch.submit({"name": "fails", "steps": FAILS})
    assert batch.runner().wait(PATIENCE_S) == 4
    first = batch("recover", "r1", "--retry-unknown")
    assert "1 of 1 failed job reset" in first
    assert "start one with `buoy runner --run r1`" in first
    again = batch("recover", "r1", "--retry-unknown")
    assert "0 of 1 failed job reset" in again
    assert "a: its reset was sent before, and the next runner reads it" in again
    assert "start one with `buoy runner --run r1`" in again
    assert batch.json("show", "r1")["unread"] == 1
    batch("recover", "r1", "--dry-run")
    assert "A request about its jobs waits in its inbox" in batch("why", "r1")
    (batch.folder / "go").touch()
    assert batch.runner().wait(PATIENCE_S) == 0


def test_a_watch_of_a_run_without_allocations_ends_if_slurm_does_not_answer(played: Played) -> None:
    played.submit({"name": "held", "steps": HELD})
    (played.slurm / "away").touch()
    said = played("watch", "r1", "--recover", code=5)
    assert "run r1 has no allocations, and Slurm does not answer" in said
    assert "buoy recover r1" in said
