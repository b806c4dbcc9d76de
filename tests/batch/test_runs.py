"""Batch runs by the command line, with real runners as processes."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from typing import Any

import pytest

from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until

CHAIN = {
    "name": "chain",
    "parameters": {"k": "1:12"},
    "steps": [
        {"id": "prep", "run": "echo prep >> witness"},
        {"id": "train_{k}", "needs": ["prep"], "run": "echo train_{k} >> witness"},
        {"id": "join", "needs": ["train_{k}"], "run": "echo join >> witness"},
    ],
}


def _one(run: str, **more: Any) -> dict[str, Any]:
    return {"name": "one", "steps": [{"id": "job", "run": run, **more}]}


def test_every_job_of_a_graph_runs_once_and_in_order(batch: Batch) -> None:
    batch.submit(CHAIN)
    runners = [batch.runner("--cpus", "2"), batch.runner("--cpus", "2")]
    assert [each.wait(PATIENCE_S) for each in runners] == [0, 0]
    seen = batch.seen()
    assert seen[0] == "prep"
    assert seen[-1] == "join"
    assert sorted(seen[1:-1]) == sorted(f"train_{k}" for k in range(1, 13))
    assert {job["status"] for job in batch.jobs().values()} == {"completed"}


def test_a_failed_job_keeps_only_what_needs_it_waiting(batch: Batch) -> None:
    spec = {
        "name": "parts",
        "steps": [
            {"id": "bad", "run": "test -e ok"},
            {"id": "after_bad", "needs": ["bad"], "run": "true"},
            {"id": "good", "needs": [], "run": "true"},
        ],
    }
    batch.submit(spec)
    assert batch.runner().wait(PATIENCE_S) == 4
    jobs = batch.jobs()
    assert [jobs[name]["status"] for name in ("bad", "after_bad", "good")] == ["failed", "blocked", "completed"]
    assert (jobs["bad"]["cause"], jobs["bad"]["exit_code"]) == ("exit_code", 1)
    assert jobs["after_bad"]["blocked_by"] == "bad"
    assert batch.status() == "paused"

    (batch.folder / "ok").touch()
    assert "start one with `buoy runner --run r1`" in batch("reset", "r1", "bad")
    assert batch.runner().wait(PATIENCE_S) == 0
    assert batch.jobs()["bad"]["attempt"] == 2
    assert {job["status"] for job in batch.jobs().values()} == {"completed"}


def test_a_job_that_takes_too_much_memory_is_killed_and_gets_more(batch: Batch) -> None:
    # It lasts until it is killed, and the next time no longer than it must.
    eat = f"test -e more || exec {sys.executable} -c 'import time; data = bytearray(40_000_000); time.sleep(100)'"
    batch.submit(_one(eat, resources={"memory": "30MiB"}))
    assert batch.runner().wait(PATIENCE_S) == 4
    job = batch.jobs()["job"]
    assert (job["status"], job["cause"]) == ("failed", "oom")

    plan = batch.json("recover", "r1", "--dry-run", "--memory-multiplier", "4")["jobs"]["jobs"]
    assert batch.jobs()["job"]["status"] == "failed"
    assert plan[0]["memory_bytes"] >= 4 * 30 * 2**20
    batch("recover", "r1", "--memory-multiplier", "4")
    (batch.folder / "more").touch()
    assert batch.runner().wait(PATIENCE_S) == 0


def test_a_job_that_takes_too_long_is_stopped_and_gets_more_time(batch: Batch) -> None:
    # A busy machine needs seconds to start the quick one.
    batch.submit(_one("test -e fast || sleep 60", resources={"time": "5s"}))
    assert batch.runner().wait(PATIENCE_S) == 4
    assert batch.jobs()["job"]["cause"] == "timeout"
    (batch.folder / "fast").touch()
    batch("recover", "r1")
    assert batch.runner().wait(PATIENCE_S) == 0


def test_a_job_that_does_not_make_its_file_has_failed(batch: Batch) -> None:
    batch.submit(_one("true", outputs=["result.csv"]))
    assert batch.runner().wait(PATIENCE_S) == 4
    assert batch.jobs()["job"]["cause"] == "missing_output"


def test_a_retry_runs_after_its_command_and_only_on_its_exit_codes(batch: Batch) -> None:
    steps = [
        {"id": "again", "run": "echo again >> witness; test -e mended || exit 7", "retries": 3, "backoff": 0.1,
         "retry_on": [7], "before_retry": "echo mend >> witness; touch mended"},
        {"id": "never", "needs": ["again"], "run": "echo never >> witness; exit 9", "retries": 3, "retry_on": [7]},
    ]  # fmt: skip
    batch.submit({"name": "retries", "steps": steps})
    assert batch.runner().wait(PATIENCE_S) == 4
    assert batch.seen() == ["again", "mend", "again", "never"]
    assert batch.jobs()["again"]["attempt"] == 2


def test_a_job_is_cancelled_with_what_it_needs_only_if_its_spec_says_so(batch: Batch) -> None:
    steps = [
        {"id": "bad", "run": "test -e ok"},
        {"id": "goes", "needs": ["bad"], "run": "true", "cancel_with_needs": True},
        {"id": "stays", "needs": ["bad"], "run": "true"},
    ]
    batch.submit({"name": "cancels", "steps": steps})
    assert batch.runner().wait(PATIENCE_S) == 4
    assert [batch.jobs()[name]["status"] for name in ("goes", "stays")] == ["cancelled", "blocked"]
    (batch.folder / "ok").touch()
    batch("reset", "r1", "bad")
    assert batch.runner().wait(PATIENCE_S) == 0
    assert {job["status"] for job in batch.jobs().values()} == {"completed"}


def test_what_needs_a_disabled_job_runs_without_it(batch: Batch) -> None:
    steps = [{"id": "bad", "run": "false"}, {"id": "after", "needs": ["bad"], "run": "echo after >> witness"}]
    batch.submit({"name": "disables", "steps": steps})
    assert batch.runner().wait(PATIENCE_S) == 4
    batch("disable", "r1", "bad")
    assert batch.runner().wait(PATIENCE_S) == 0
    assert batch.seen() == ["after"]
    assert batch.jobs()["bad"]["status"] == "disabled"


def test_a_run_that_ends_as_soon_as_a_runner_takes_it_is_told_as_ended(batch: Batch) -> None:
    batch.submit(_one("false"))
    assert batch.runner().wait(PATIENCE_S) == 4
    batch("disable", "r1", "job")
    assert batch.runner().wait(PATIENCE_S) == 0
    assert batch.status() == "completed"


def test_a_running_job_can_be_cancelled(batch: Batch) -> None:
    steps = [{"id": "long", "run": "echo long >> witness; sleep 600"}, {"id": "short", "needs": [], "run": "true"}]
    batch.submit({"name": "cancels", "steps": steps})
    runner = batch.runner()
    wait_until(lambda: batch.seen() == ["long"])
    assert batch.jobs()["long"]["status"] == "running"
    batch("cancel", "r1", "long")
    assert runner.wait(PATIENCE_S) == 0
    assert batch.jobs()["long"]["status"] == "cancelled"


def test_a_killed_runner_costs_only_the_jobs_that_it_was_running(batch: Batch) -> None:
    spec = {
        "name": "kills",
        "parameters": {"k": "1:30"},
        "steps": [{"id": "job_{k}", "run": "echo job_{k} >> witness; sleep 0.2; echo done_{k} >> witness"}],
    }
    batch.submit(spec)
    first = batch.runner("--cpus", "2")
    wait_until(lambda: len(batch.seen()) >= 10)
    first.kill()
    first.wait(PATIENCE_S)
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    done = Counter(each for each in batch.seen() if each.startswith("done_"))
    began = Counter(each for each in batch.seen() if each.startswith("job_"))
    assert len(began) == len(done) == 30
    assert sum(count - 1 for count in began.values()) <= 2
    assert {job["status"] for job in batch.jobs().values()} == {"completed"}
    assert {job["attempt"] for job in batch.jobs().values()} == {1}


def test_a_stopped_runner_gives_everything_back(batch: Batch) -> None:
    spec = {
        "name": "stops",
        "parameters": {"k": "1:6"},
        "steps": [{"id": "job_{k}", "run": "echo job_{k} >> witness; test -e ok || sleep 600"}],
    }
    batch.submit(spec)
    runner = batch.runner("--cpus", "2")
    wait_until(lambda: len(batch.seen()) == 2)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(PATIENCE_S) == 0
    (batch.folder / "ok").touch()
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    began = Counter(batch.seen())
    assert len(began) == 6
    assert sum(began.values()) == 8


def test_a_stopped_runner_lets_a_job_save_its_work_and_keeps_what_had_ended(batch: Batch) -> None:
    save = "trap 'echo saved >> witness; exit 0' TERM; echo begun >> witness; while :; do sleep 0.02; done"
    steps = [
        {"id": "quick", "run": "echo quick >> witness"},
        {"id": "slow", "needs": [], "run": f"test -e saved || {{ {save}; }}", "supports_termination": True},
        {"id": "later", "needs": ["slow"], "run": "echo later >> witness"},
    ]
    batch.submit({"name": "saves", "steps": steps})
    runner = batch.runner("--cpus", "2")
    wait_until(lambda: sorted(batch.seen()) == ["begun", "quick"])
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(PATIENCE_S) == 0
    assert batch.seen()[-1] == "saved"

    (batch.folder / "saved").touch()
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    assert Counter(batch.seen())["later"] == 1
    assert {job["attempt"] for job in batch.jobs().values()} == {1}


def test_jobs_wait_for_a_runner_that_has_what_they_need(batch: Batch) -> None:
    steps = [
        {"id": "large", "run": "echo large $CUDA_VISIBLE_DEVICES >> witness", "resources": {"cpus": 4, "gpus": 2}},
        {"id": "small", "needs": [], "run": "true"},
    ]
    batch.submit({"name": "sizes", "steps": steps})
    small = batch.runner("--cpus", "1", "--gpus", "0")
    wait_until(lambda: batch.jobs()["small"]["status"] == "completed")
    assert batch.jobs()["large"]["status"] == "ready"
    # Told while the runner waits: without another runner it would wait for ever.
    wait_until(lambda: "do not fit here: it needs 4 cpus, and the runner has 1" in batch.said())
    assert batch.runner("--cpus", "4", "--gpus", "2").wait(PATIENCE_S) == 0
    assert small.wait(PATIENCE_S) == 0
    assert batch.seen() == ["large 0,1"]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"id": "a", "needs": ["b"], "run": "true"}, {"id": "b", "needs": ["a"], "run": "true"}], "a cycle"),
        ([{"id": "a", "needs": ["c"], "run": "true"}], "no step 'c'"),
        ([{"id": "a", "run": "true", "resources": {"cpus": -1}}], "a whole number from 1"),
        ([{"id": "a", "run": "true", "resources": {"memory": "9000000 TiB"}}], "more than 1 PiB"),
        ([{"id": "a", "run": "true", "resources": {"time": "0s"}}], "more than nothing"),
        ([{"id": "a", "modules": [{"id": "m", "run": "true"}]}], "make it a step of its own"),
        ([{"id": "a_{k}", "run": "true"}], "100,001"),
    ],
)
def test_a_bad_spec_is_refused_before_anything_is_stored(batch: Batch, steps: list[Any], said: str) -> None:
    parameters = {"k": "1:100001"} if "{k}" in steps[0]["id"] else {}
    assert said in batch.submit({"name": "bad", "parameters": parameters, "steps": steps}, code=2)
    assert batch.json("ps", "--all", code=0)["runs"] == [] if (batch.folder / "buoy.db").exists() else True


def test_why_names_what_failed_and_what_no_runner_can_give(batch: Batch) -> None:
    steps = [
        {"id": "bad", "run": "exit 3"},
        {"id": "big", "needs": [], "run": "true", "resources": {"cpus": 64, "memory": "900GiB"}},
    ]
    batch.submit({"name": "whys", "steps": steps})
    runner = batch.runner()
    wait_until(lambda: batch.jobs()["bad"]["status"] == "failed" and batch.jobs()["big"]["status"] == "ready")
    said = batch("why", "r1")
    assert "Job bad failed on " in said
    assert "no live runner takes jobs that need 64 cpus, 900 GiB of memory" in said
    assert "The next runner that has what they need runs them" in said
    assert "see what a recovery would do: buoy recover r1 --dry-run" in said
    batch("cancel", "r1", "big")
    assert runner.wait(PATIENCE_S) == 4
    said = batch("why", "r1")
    assert "r1 is paused: 1 job failed, and nothing else can run." in said
    assert "buoy recover r1 --dry-run" in said
    assert "run bad again, with the same limits: buoy reset r1 bad" in said
    assert "go without bad: buoy disable r1 bad" in said
    assert "failed" in batch("watch", "r1", code=4)


def test_lots_end_with_a_cancelled_run_and_are_not_listed_as_runs(batch: Batch) -> None:
    steps = [
        {"id": "big", "run": "true", "resources": {"cpus": 64, "memory": "900GiB"}},
        {"id": "long", "needs": [], "run": "echo long >> witness; sleep 600"},
    ]
    batch.submit({"name": "cancels", "steps": steps})
    runner = batch.runner()
    wait_until(lambda: batch.seen() == ["long"])
    assert [each["document"]["run_id"] for each in batch.json("ps")["runs"]] == ["r1"]
    assert len(batch.json("ps", "--parent", "r1")["runs"]) == 2
    batch("cancel", "r1")
    assert runner.wait(PATIENCE_S) == 3
    assert batch.json("ps", "--parent", "r1")["runs"] == []
    assert {each["document"]["status"] for each in batch.json("ps", "--all", "--parent", "r1")["runs"]} == {"cancelled"}


def test_a_runner_says_why_it_leaves_a_paused_run(batch: Batch) -> None:
    batch.submit(_one("exit 3"))
    assert batch.runner().wait(PATIENCE_S) == 4
    assert "r1 is paused: 1 job failed (job); see `buoy why r1`" in (batch.folder / "runner-0.txt").read_text()


def test_a_cancelled_run_ends_its_lots_though_no_runner_of_jobs_is_there(batch: Batch) -> None:
    batch.submit(_one("true"))
    worker = batch.process("worker")
    wait_until(lambda: len(batch.json("ps", "--parent", "r1")["runs"]) == 1)
    batch("cancel", "r1")
    wait_until(lambda: batch.json("ps", "--parent", "r1")["runs"] == [])
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0


def test_a_cancellation_while_no_process_is_there_ends_the_lots_too(batch: Batch) -> None:
    batch.submit({"name": "big", "steps": [{"id": "big", "run": "true", "resources": {"cpus": 64}}]})
    runner = batch.runner("--cpus", "2")
    wait_until(lambda: len(batch.json("ps", "--parent", "r1")["runs"]) == 1)
    runner.kill()
    runner.wait(PATIENCE_S)
    assert "cancelled" in batch("cancel", "r1")
    assert batch.json("ps", "--parent", "r1")["runs"] == []
    assert {each["document"]["status"] for each in batch.json("ps", "--all", "--parent", "r1")["runs"]} == {"cancelled"}


def test_jobs_that_wait_name_what_failed_how_and_where(batch: Batch) -> None:
    steps = [
        {"id": "bad", "run": "exit 3"},
        {"id": "waits", "needs": ["bad"], "run": "true"},
        {"id": "goes", "needs": ["bad"], "run": "true", "cancel_with_needs": True},
    ]
    batch.submit({"name": "blocks", "steps": steps})
    assert "start a runner of its jobs: buoy runner --run r1" in batch("why", "r1")
    assert batch.runner().wait(PATIENCE_S) == 4
    found = batch.jobs()
    assert found["waits"]["blocked_by"] == found["goes"]["blocked_by"] == "bad"
    assert found["waits"]["blocker"]["cause"] == "exit_code"
    where = found["waits"]["blocker"]["host"]
    said = batch("jobs", "r1")
    assert f"blocked by bad, which failed on {where} at " in said
    assert f"cancelled with bad, which failed on {where} at " in said
