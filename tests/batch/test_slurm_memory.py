"""What a watch remembers after it was started again, and what it can do in a single look. All of it is in the log."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from buoy.core.ids import RunId
from buoy.core.log.cluster_changes import AllocationEnded
from buoy.host import network_disk
from buoy.operations.slurm.cluster_log import change_cluster
from buoy.wiring.app import open_client
from tests.batch.slurm_plays import Played, played
from tests.patience import PATIENCE_S, wait_until

__all__ = ["played"]


def submit(played: Played, command: str = "echo {k} >> witness; sleep 600", jobs: int = 1) -> None:
    step = {"id": "job_{k}", "run": command}
    played.submit({"name": "sweep", "parameters": {"k": f"1:{jobs}"}, "steps": [step]})
    played("submit", "spec.yaml", "--id", "r1", "--slurm")


def look(played: Played, *words: str, code: int = 4) -> str:
    """A watch of one look, as a crontab calls it."""
    return played("watch", "r1", "--recover", "--once", *words, code=code)


def fail_in(played: Played, number: int) -> None:
    assert played.runner_in(number).wait(PATIENCE_S) == 4, played.said()
    played.set(number, state="COMPLETED")


def test_recoveries_are_counted_in_the_log_and_begin_again_after_a_person(played: Played) -> None:
    submit(played, "exit 9")
    words = ("--retry-unknown", "--max-recoveries", "1")
    fail_in(played, 0)
    assert "reset 1 job: job_1" in look(played, *words)
    fail_in(played, 1)
    assert "reset" not in look(played, *words), "another watch has done it"
    assert len(played.queue) == 2
    played("recover", "r1", "--retry-unknown", "--submit")
    fail_in(played, 2)
    assert "reset 1 job: job_1" in look(played, *words)


def test_a_single_look_asks_twice_about_what_the_queue_does_not_show(played: Played) -> None:
    submit(played)
    played.set(0, purged=True)
    played.calls()
    said = look(played)
    assert "J2" in said and "asked for" in said and len(played.queue) == 2
    assert played.calls()[:3] == ["squeue", "sacct", "squeue"]


def test_a_job_that_the_end_of_its_allocation_killed_runs_again_while_others_run(played: Played) -> None:
    """Slurm signals jobs and runner at once: the runner saw the job fail before it was asked to stop."""
    submit(played, "echo $$ > pid_{k}; echo {k} >> witness; sleep 600", jobs=2)
    played.runner_in(0)
    wait_until(lambda: sorted(played.seen()) == ["1", "2"], "both jobs")
    os.kill(int((played.folder / "pid_1").read_text()), signal.SIGTERM)
    wait_until(lambda: played.jobs()["job_1"]["status"] == "failed", "the failure")
    played.lose(0, "PREEMPTED")
    said = look(played, "--max-recoveries", "1")
    assert "2 jobs lost" not in said and "reset 1 job: job_1" in said and len(played.queue) == 2
    assert "reset" not in look(played, "--max-recoveries", "1")


def test_false_starts_are_counted_in_the_log_and_a_person_can_ask_for_the_next(played: Played) -> None:
    submit(played)
    for number in range(5):
        played.set(number, state="FAILED")
        said = look(played)
    assert "allocations failed 5 times before a runner started" in said and len(played.queue) == 5
    assert "buoy slurm regenerate r1 --submit" in look(played) and len(played.queue) == 5, (
        "another watch asks for none either"
    )
    played("slurm", "regenerate", "r1", "--submit")
    assert len(played.queue) == 6 and "no further" not in look(played), "there is hope while it waits"
    played.runner_in(5)
    wait_until(lambda: played.seen() == ["1"], "the job")
    look(played)
    played.lose(5, "PREEMPTED")
    assert "no further" not in look(played) and len(played.queue) == 7


def test_a_plan_counts_what_is_left_of_an_allocation(played: Played) -> None:
    """Ten jobs of twenty minutes fit the eight places of an hour, and two more. After half of it, four."""
    step = {"id": "job_{k}", "run": "true", "resources": {"cpus": 1, "time": "20m"}}
    played.submit({"name": "sweep", "parameters": {"k": "1:8"}, "steps": [step]})
    played("submit", "spec.yaml", "--id", "r1", "--slurm")
    assert len(played.queue) == 1
    played.set(0, state="RUNNING", left="58:00")
    played("sync-status", "r1")
    assert played.json("slurm", "regenerate", "r1")["planned"] == []
    played.set(0, left="30:00")
    (group,) = played.json("slurm", "regenerate", "r1", "--dry-run")["groups"]
    assert (group["served"], group["allocations"]) == (4, 1)
    played.set(0, left="10:00")
    assert played.json("sync-status", "r1", code=1)["stuck"], "no job fits it any more"


def findings(played: Played) -> dict[str, str]:
    return {each["code"]: each["reason"] for each in played.json("why", "r1")["findings"]}


def test_a_runner_whose_allocation_was_recorded_as_ended_is_explained(played: Played) -> None:
    """Who recorded the end was killed before it declared the runner dead."""
    submit(played)
    played.runner_in(0)
    wait_until(lambda: played.seen() == ["1"], "the job")
    played("sync-status", "r1")
    (allocation,) = played.allocations()

    async def record() -> None:
        async with open_client(played.store, actor="me") as client:
            end = AllocationEnded(allocation["name"], "preempted", "PREEMPTED")
            await change_cluster(client, RunId("r1"), lambda view: [end])

    played.lose(0, "PREEMPTED")
    asyncio.run(record())
    runner = played.jobs()["job_1"]["runner"]
    assert f"runner {runner} was lost with allocation {allocation['name']}; 1 job lost" in findings(played)["J3"]
    said = played("why", "r1")
    assert "J3" in said and "buoy sync-status r1" in said
    played("sync-status", "r1", code=1)
    assert "J3" not in findings(played)


def test_an_allocation_whose_id_was_not_recorded_is_explained(played: Played) -> None:
    """`buoy` was killed between sbatch and its record."""
    submit(played)
    played("slurm", "cancel", "r1")
    played("sync-status", "r1", code=1)
    played("slurm", "regenerate", "r1")
    planned = played.allocations()[1]
    assert planned["job_id"] is None
    played.set(0, name=planned["name"], state="PENDING")
    assert f"allocation {planned['name']} is job 100; its id was not recorded" in findings(played)["J5"]
    said = played("why", "r1")
    assert "J5" in said and "buoy sync-status r1" in said
    assert [each["code"] for each in played.json("sync-status", "r1")["orphans"]] == ["J5"]
    assert played.allocations()[1]["job_id"] == "100" and "J5" not in findings(played)


@pytest.mark.parametrize(
    "words",
    [
        ("watch", "r1", "--recover", "--once"),
        ("watch", "r1", "--auto-schedule"),
        ("sync-status", "r1"),
        ("workflows", "sync-status", "r1"),
        ("recover", "r1", "--submit"),
        ("slurm", "regenerate", "r1", "--submit"),
        ("slurm", "regenerate", "r1", "--dry-run"),
        ("slurm", "cancel", "r1"),
        ("submit", "spec.yaml", "--id", "r2", "--slurm"),
        ("hpc", "show", "live"),
    ],
)
def test_a_machine_without_slurm_says_so_and_changes_nothing(
    played: Played, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    actions = [
        {"trigger": trigger, "kind": "run_commands", "commands": ["touch fired"]}
        for trigger in ("on_workflow_start", "on_jobs_ready", "on_jobs_complete", "on_workflow_complete")
    ]
    step = {"id": "a", "run": "true"}
    played.submit({"name": "one", "steps": [step], "actions": actions})
    played("slurm", "regenerate", "r1")
    before = played("slurm", "allocations", "r1", "--json")
    paths = os.environ["PATH"].split(":")
    monkeypatch.setenv("PATH", ":".join(each for each in paths if not (Path(each) / "squeue").exists()))
    assert "no Slurm commands found: squeue is not in PATH" in played(*words, code=2)
    assert played("slurm", "allocations", "r1", "--json") == before
    assert not (played.folder / "fired").exists() and len(played.json("ps")["runs"]) == 1
    assert "squeue" not in played("watch", "r1", "--once", code=4), "a look that changes nothing needs no Slurm"


def test_a_store_on_a_network_disk_is_refused_before_anything_is_submitted(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading is allowed: a person can still look, and copy the run to a server."""
    submit(played)
    (played.folder / "mounts").write_text(f"30 22 0:35 / {played.folder.resolve()} rw - nfs4 filer:/data rw\n")
    monkeypatch.setattr(network_disk, "MOUNTS", played.folder / "mounts")
    for words in (
        ("submit", "spec.yaml", "--id", "r2", "--slurm"),
        ("slurm", "regenerate", "r1", "--submit"),
        ("recover", "r1", "--submit"),
        ("watch", "r1", "--recover", "--once"),
    ):
        assert "is on a network disk (nfs4)" in played(*words, code=2)
    assert len(played.queue) == len(played.allocations()) == len(played.json("ps")["runs"]) == 1
