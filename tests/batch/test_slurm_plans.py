"""Plans of allocations at the command line: profiles, groups, dry runs, and the jobs that they are for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.batch.slurm_plays import Played, played
from tests.patience import wait_until

__all__ = ["played"]

SPEC: dict[str, Any] = {
    "name": "mixed",
    "parameters": {"k": "1:3"},
    "steps": [
        {"id": "small_{k}", "run": "true"},
        {"id": "large", "run": "true", "needs": [], "resources": {"cpus": 3, "time": "20m"}},
        {"id": "last", "run": "true", "needs": ["large"]},
    ],
}


@pytest.fixture(autouse=True)
def settings(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(played.folder / "config"))
    monkeypatch.delenv("NREL_CLUSTER", raising=False)
    played.submit(SPEC)


def test_profiles_are_listed_shown_and_detected(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each["profile"]["name"] for each in played.json("hpc", "profiles")["profiles"]] == ["kestrel"]
    assert played.json("hpc", "detect", code=1) == {"cluster": "pond", "profile": None}
    folder = played.folder / "config" / "buoy" / "profiles"
    folder.mkdir(parents=True)
    live = played.json("hpc", "show", "live")
    assert [each["name"] for each in live["partitions"]] == ["main", "long"]
    (folder / "mine.toml").write_text(played("hpc", "show", "live").partition("main: ")[0])
    assert played("hpc", "detect").strip() == "pond"
    monkeypatch.setenv("NREL_CLUSTER", "kestrel")
    assert played("hpc", "detect").strip() == "kestrel"
    assert "gpu-h100" in played("hpc", "show", "kestrel")


def test_a_profile_gives_the_partitions_of_a_plan_without_a_question(played: Played) -> None:
    played.calls()
    found = played.json("slurm", "regenerate", "r1", "--profile", "kestrel", "--walltime", "1d", "--submit")
    assert "sinfo" not in played.calls()
    assert {"--partition=standard"} == {word for word in played.queue[0]["options"] if "partition" in word}
    assert len(found["submitted"]) == len(played.queue) == 2
    played("slurm", "regenerate", "r1", "--profile", "nope", code=2)


def left_files(played: Played) -> list[str]:
    """All but the files of the database, and the calls that the played Slurm notes."""
    found = (path for path in played.folder.rglob("*") if "buoy.db" not in path.name and path.name != "calls")
    return sorted(map(str, found))


def test_a_dry_run_changes_nothing_anywhere(played: Played) -> None:
    before = (played("slurm", "allocations", "r1"), played("slurm", "actions", "r1"), played("events", "r1"))
    files = left_files(played)
    found = played.json("slurm", "regenerate", "r1", "--dry-run", "--submit")
    assert (found["pending"], len(found["planned"]), found["submitted"], played.queue) == (5, 2, [], [])
    assert before == (played("slurm", "allocations", "r1"), played("slurm", "actions", "r1"), played("events", "r1"))
    assert files == left_files(played)


def test_jobs_of_one_partition_share_a_scheduler_if_that_is_wanted(played: Played) -> None:
    found = played.json("slurm", "regenerate", "r1", "--group-by", "partition", "--submit")
    assert [(each["jobs"], each["deferred"]) for each in found["groups"]] == [(4, False), (1, True)]
    jobs = {each["job"]: each for each in played.json("slurm", "jobs", "r1")["jobs"]}
    assert jobs["small_1"]["scheduler"] == jobs["large"]["scheduler"] == "c3mg0n1t1200"
    assert jobs["last"]["scheduler"].endswith("_deferred") and jobs["last"]["status"] == "blocked"
    assert played.json("slurm", "regenerate", "r1", "--group-by", "partition")["planned"] == []


def test_jobs_are_listed_with_their_scheduler_and_allocation(played: Played) -> None:
    played("slurm", "regenerate", "r1", "--submit")
    said = played("slurm", "jobs", "r1", "--status", "blocked")
    assert "last  blocked  c1mg0n1t_deferred" in said and "small" not in said


def test_allocations_that_slurm_may_requeue_keep_their_output(played: Played) -> None:
    played("slurm", "regenerate", "r1", "--requeue", "--submit")
    assert {"--requeue", "--open-mode=append"} <= set(played.queue[0]["options"])
    assert "--no-requeue" not in played.queue[0]["options"]


def test_a_surplus_allocation_is_cancelled_when_nothing_is_left_for_it(played: Played) -> None:
    played("slurm", "regenerate", "r1", "--submit")
    played("disable", "r1", "large")
    assert len(played.queue) == 2
    said = played("watch", "r1", "--auto-schedule", "--once", code=4)
    assert "cancelled 1 allocation" not in said, "its request is not read yet, so the job may still run"
    played.runner("--cpus", "1")
    wait_until(lambda: played.status() == "completed", "the run")
    played("watch", "r1", "--auto-schedule", "--once", code=0)
    assert {each["state"] for each in played.queue} == {"CANCELLED"}
    assert {each["status"] for each in played.allocations()} == {"complete"}


def test_jobs_that_are_over_leave_no_allocation_in_the_queue_while_others_wait(played: Played) -> None:
    spec = {**SPEC, "steps": [*SPEC["steps"], {"id": "asked", "needs": [], "ask": {"title": "Publish?"}}]}
    played.submit(spec, "r2")
    played("slurm", "regenerate", "r2", "--submit")
    played.runner("--cpus", "8", run_id="r2")
    wait_until(lambda: played.jobs("r2")["last"]["status"] == "completed", "all commands")
    said = played("watch", "r2", "--auto-schedule", "--once", code=4)
    assert "cancelled 2 allocations" in said
    assert {each["cause"] for each in played.allocations("r2")} == {"surplus"}
    assert "no orphans" in played("sync-status", "r2")


def test_a_cancelled_run_leaves_nothing_at_slurm(played: Played) -> None:
    played("slurm", "regenerate", "r1", "--submit")
    runner = played.runner_in(0)
    played("cancel", "r1")
    assert runner.wait(60) in (0, 3)
    assert {each["state"] for each in played.queue} == {"CANCELLED"}
    assert {each["status"] for each in played.allocations()} == {"complete"} and played.status() == "cancelled"


def test_each_of_many_submissions_is_recorded(played: Played) -> None:
    spec = {"name": "many", "parameters": {"k": "1:200"}, "steps": [{"id": "a_{k}", "run": "true"}]}
    played.submit(spec, "r3")
    found = played.json("slurm", "regenerate", "r3", "--submit", "--max-allocations", "6")
    assert len(found["submitted"]) == 6 and all(each["job_id"] for each in played.allocations("r3"))


def test_nothing_to_do_is_a_success(played: Played) -> None:
    played.run_all()
    assert "nothing to do" in played("slurm", "regenerate", "r1", "--submit")
    assert played.queue == []


def test_what_was_asked_of_allocations_holds_for_the_next_ones(played: Played) -> None:
    """The watch has no options of its own: it asks as the submission did, until a person asks otherwise."""
    spec = {"name": "many", "parameters": {"k": "1:200"}, "steps": [{"id": "a_{k}", "run": "true"}]}
    (played.folder / "many.yaml").write_text(yaml.safe_dump(spec))
    wishes = ("--account", "bio", "--partition", "long", "--walltime", "2h", "--prologue", "module load x", "--requeue")
    played("submit", "many.yaml", "--id", "r3", "--slurm", "--max-allocations", "2", *wishes)
    played.set(0, state="CANCELLED")
    played.set(1, state="CANCELLED")
    played("watch", "r3", "--auto-schedule", "--once", code=4)
    assert len(played.queue) == 4
    for job in played.queue:
        assert {"--account=bio", "--partition=long", "--time=02:00:00", "--requeue"} <= set(job["options"])
        assert "module load x" in (played.slurm / f"{job['name']}.sh").read_text()
    for number in (2, 3):
        played.set(number, state="CANCELLED")
    played("sync-status", "r3", code=1)
    played("slurm", "regenerate", "r3", "--submit", "--account", "geo", "--no-requeue", "--max-allocations", "1")
    played.set(4, state="CANCELLED")
    played("watch", "r3", "--auto-schedule", "--once", code=4)
    assert len(played.queue) == 6
    for job in played.queue[4:]:
        assert {"--account=geo", "--partition=long", "--no-requeue"} <= set(job["options"])


def test_the_most_allocations_of_a_group_include_those_that_live(played: Played) -> None:
    spec = {"name": "many", "parameters": {"k": "1:200"}, "steps": [{"id": "a_{k}", "run": "true"}]}
    played.submit(spec, "r3")
    most = ("--submit", "--max-allocations", "2")
    assert len(played.json("slurm", "regenerate", "r3", *most)["submitted"]) == 2
    assert played.json("slurm", "regenerate", "r3", *most)["submitted"] == []
    played.set(0, state="CANCELLED")
    played("sync-status", "r3")
    assert len(played.json("slurm", "regenerate", "r3", *most)["submitted"]) == 1
