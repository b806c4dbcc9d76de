"""Recovery of jobs that were lost with their allocation: why, and with which limits they run again."""

from __future__ import annotations

import json
from typing import Any

from tests.batch.conftest import Batch
from tests.batch.slurm_plays import Played, played
from tests.patience import wait_until

__all__ = ["played"]

# The first start never ends by itself.
ONCE = "echo {k} >> witness; if [ $(grep -c '^{k}$' witness) = 1 ]; then sleep 600; fi"


def start(played: Played, jobs: int = 1, *words: str, **step: Any) -> None:
    spec = {"name": "sweep", "parameters": {"k": f"1:{jobs}"}, "steps": [{"id": "job_{k}", "run": ONCE, **step}]}
    played.submit(spec)
    played("submit", "spec.yaml", "--id", "r1", "--slurm", *words)
    played.runner_in(0)
    wait_until(lambda: len(played.seen()) == jobs, "all jobs to run")


def test_a_job_whose_allocation_ran_out_of_memory_gets_more_and_runs_again(played: Played) -> None:
    start(played, resources={"memory": "1GiB"})
    played.lose(0, "OUT_OF_MEMORY", "61 1500000K")
    shown = played.json("recover", "r1", "--dry-run", code=1)
    (orphan,) = [each for each in shown["slurm"]["synced"]["orphans"] if each["code"] == "J1"]
    assert (orphan["cause"], orphan["jobs"], shown["jobs"]["jobs"]) == ("oom", ["job_1"], [])
    found = played.json("recover", "r1", code=1)
    (job,) = found["jobs"]["jobs"]
    assert (job["cause"], job["memory_bytes"]) == ("oom", 2198 * 2**20), "1.5 times the peak, in whole MiB"
    assert job["evidence"]["allocation_state"] == "OUT_OF_MEMORY"
    assert (job["evidence"]["allocation_elapsed_s"], job["evidence"]["allocation_cause"]) == (61.0, "oom")
    (allocation,) = [each for each in played.allocations() if each["status"] == "complete"]
    assert (allocation["elapsed_s"], allocation["peak_memory_bytes"]) == (61.0, 1_500_000 * 1024)
    assert "no allocation was submitted for them" in played("recover", "r1", code=1)
    played.run_all()
    assert played.seen() == ["1", "1"] and played.jobs()["job_1"]["status"] == "completed"


def test_without_accounting_the_word_of_the_queue_is_enough(played: Played) -> None:
    start(played, jobs=2)
    played.lose(0, "TIMEOUT")
    found = played.json("recover", "r1", "--submit")
    jobs = found["jobs"]["jobs"]
    assert {(each["cause"], each["time_s"]) for each in jobs} == {("timeout", 5_040.0)}, "1.4 times the walltime"
    assert played.allocations()[0]["cause"] == "timeout" and "--time=01:00:00" in played.queue[0]["options"]
    assert {"--time=01:27:00", "--partition=long"} <= set(played.queue[1]["options"]), "main gives an hour at most"


def test_a_preempted_job_is_free_and_keeps_its_limits(played: Played) -> None:
    start(played)
    played.lose(0, "PREEMPTED")
    found = played.json("recover", "r1", code=1)
    (job,) = found["jobs"]["jobs"]
    assert (job["cause"], job["free"], job.get("time_s")) == ("preempted", True, None)
    played.run_all()
    assert played.seen() == ["1", "1"]


def test_watch_raises_limits_of_lost_jobs_so_that_they_are_not_lost_again(played: Played) -> None:
    start(played)
    played.lose(0, "TIMEOUT")
    said = played("watch", "r1", "--recover", "--once", code=4)
    assert "reset 1 job: job_1" in said
    (again,) = [each for each in played.queue if each["state"] == "PENDING"]
    assert "--time=01:27:00" in again["options"], "with the margin of a runner"
    assert "reset" not in played("watch", "r1", "--recover", "--once", code=4)


def test_what_was_reset_before_the_scheduler_went_away_is_told(played: Played) -> None:
    start(played)
    played.lose(0, "TIMEOUT")
    (played.slurm / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    said = played("watch", "r1", "--recover", "--once", code=4)
    assert "the look ended early: sinfo failed" in said and "reset 1 job: job_1" in said
    assert "nothing was changed: sinfo failed" in played("watch", "r1", "--recover", "--once", code=4)


def test_a_job_that_the_queue_forgot_and_accounting_calls_running_is_lost(played: Played) -> None:
    """After a crash of the controller such a row stays for ever."""
    start(played)
    played.lose(0, "RUNNING", "61 1K")
    played.set(0, purged=True)
    found = played.json("sync-status", "r1", code=1)
    assert [(each["code"], each.get("cause")) for each in found["orphans"]] == [("J1", "unknown"), ("J7", None)]


def test_the_hook_runs_before_the_reset_with_the_plan_in_a_private_file(played: Played) -> None:
    start(played)
    played.lose(0, "TIMEOUT")
    hook = 'cp "$BUOY_RECOVERY_FILE" plan.json; echo "it\'s $BUOY_RUN_ID $BUOY_FAILED_JOBS $BUOY_RESET_JOBS" > hooked'
    assert "hook" not in played.json("recover", "r1", "--recovery-hook", hook, "--dry-run", code=1)
    assert not (played.folder / "hooked").exists(), "a dry run changes nothing"
    found = played.json("recover", "r1", "--recovery-hook", hook, "--submit")
    assert (found["hook"]["exit_code"], (played.folder / "hooked").read_text()) == (0, "it's r1 1 1\n")
    assert [each["cause"] for each in json.loads((played.folder / "plan.json").read_text())] == ["timeout"]
    assert (played.folder / ".buoy" / "slurm" / "r1" / "recovery.json").stat().st_mode & 0o777 == 0o600


def test_a_hook_that_fails_stops_the_recovery_with_its_exit_code(played: Played) -> None:
    start(played)
    played.lose(0, "TIMEOUT")
    found = played.json("recover", "r1", "--recovery-hook", "echo no room >&2; exit 7", "--submit", code=1)
    assert (found["hook"]["exit_code"], found["hook"]["problem"]) == (7, "no room")
    assert len(played.queue) == 1, "nothing was submitted"
    said = played("recover", "r1", "--recovery-hook", "exit 7", code=1)
    assert "the recovery hook ended with exit code 7; nothing was reset" in said


def test_a_hook_needs_no_slurm(batch: Batch) -> None:
    batch.submit({"name": "one", "steps": [{"id": "a", "run": "exit 9"}]})
    assert batch.runner().wait(60) == 4
    batch("recover", "r1", "--recovery-hook", "exit 3", "--retry-unknown", code=1)
    assert batch.jobs()["a"]["status"] == "failed"
    batch("recover", "r1", "--recovery-hook", "touch hooked", "--retry-unknown")
    assert (batch.folder / "hooked").exists()
