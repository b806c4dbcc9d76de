"""Batch runs on a real Slurm: a private cluster, real allocations, real runners."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.patience import PATIENCE_S, wait_until
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import SlurmBatch

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(plain_cluster: Cluster) -> Cluster:
    """Without accounting."""
    return plain_cluster


# A job that notes its start, and ends when the test opens the gate.
GATED = "echo {k} >> witness; while [ ! -e gate ]; do sleep 0.1; done"


def spec(command: str = GATED, jobs: int = 2, **step: Any) -> dict[str, Any]:
    return {"name": "sweep", "parameters": {"k": f"1:{jobs}"}, "steps": [{"id": "job_{k}", "run": command, **step}]}


def submit(slurm: SlurmBatch, *words: str) -> None:
    slurm("submit", "spec.yaml", "--id", "r1", "--slurm", "--walltime", "30m", *words)


def codes(slurm: SlurmBatch, *words: str, code: int = 0) -> list[str]:
    return [each["code"] for each in slurm.json("sync-status", "r1", *words, code=code)["orphans"]]


def test_two_hundred_jobs_run_to_their_end_in_allocations(slurm: SlurmBatch) -> None:
    made = spec("echo {k} >> witness", jobs=199)
    made["steps"].append({"id": "last", "needs": ["job_{k}"], "run": "echo last >> witness"})
    slurm.write(made)
    shown = slurm.json("submit", "spec.yaml", "--slurm", "--max-allocations", "2", "--dry-run")
    assert [(each["jobs"], each["deferred"]) for each in shown["groups"]] == [(199, False), (1, True)]
    submit(slurm, "--max-allocations", "2")
    assert len(slurm.ids()) == 2
    slurm.until_status("completed")
    assert sorted(slurm.seen()) == sorted([*map(str, range(1, 200)), "last"])
    settings = slurm.folder / ".buoy" / "slurm" / "r1" / "settings.sh"
    assert settings.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_jobs_of_a_crashed_node_run_again_on_the_word_of_the_scheduler(slurm: SlurmBatch, store_url: str) -> None:
    """Nothing else proves the end of its runner: the server sees no process, and silence does not count."""
    slurm.store = store_url
    slurm.write(spec())
    submit(slurm)
    wait_until(lambda: len(slurm.seen()) == 2, "both jobs")
    assert codes(slurm) == [] and [each["status"] for each in slurm.allocations()] == ["active"]
    (job_id,) = slurm.ids()
    node = slurm.cluster.run("squeue", "-h", "-o", "%N", "-j", job_id).stdout.strip()
    slurm.cluster.crash_node(node)
    try:
        wait_until(lambda: slurm.cluster.state(job_id) == "NODE_FAIL", "the end of the allocation")
        before = slurm("slurm", "allocations", "r1")
        dry = slurm.json("sync-status", "r1", "--dry-run", code=1)
        assert [(each["code"], each.get("cause")) for each in dry["orphans"]] == [("J1", "node_fail"), ("J7", None)]
        assert sorted(dry["orphans"][0]["jobs"]) == ["job_1", "job_2"]
        assert slurm("slurm", "allocations", "r1") == before, "a dry run changed something"
        assert codes(slurm, code=1) == ["J1", "J7"]
        assert codes(slurm, code=1) == ["J7"]
        assert [each["status"] for each in slurm.allocations()] == ["complete"]
        assert {(each["status"], each["cause"]) for each in slurm.jobs().values()} == {("failed", "allocation_lost")}
        (slurm.folder / "gate").touch()
        recovered = slurm.json("recover", "r1", "--submit")
        assert len(recovered["slurm"]["allocated"]["submitted"]) == 1
        slurm.until_status("completed")
    finally:
        slurm.cluster.repair_node(node)
    assert sorted(slurm.seen()) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_a_killed_runner_has_a_successor_in_its_allocation(slurm: SlurmBatch, store_url: str) -> None:
    slurm.store = store_url
    slurm.write(spec(jobs=1))
    submit(slurm)
    wait_until(lambda: slurm.seen() == ["1"], "the job")
    runner = slurm.jobs()["job_1"]["runner"]
    (mine,) = [each for each in slurm.json("status")["runners"] if each["id"] == runner]
    slurm.cluster.kill_on(mine["host"], mine["pid"])
    wait_until(lambda: slurm.seen() == ["1", "1"], "the job under its next runner")
    assert len(slurm.ids()) == 1
    (slurm.folder / "gate").touch()
    slurm.until_status("completed")
    assert slurm.seen() == ["1", "1"]


def test_a_submission_that_was_killed_after_sbatch_is_found_by_its_name(slurm: SlurmBatch) -> None:
    slurm.write(spec("echo {k} >> witness"))
    real = subprocess.run(["which", "sbatch"], capture_output=True, text=True, check=True).stdout.strip()
    trap = slurm.folder / "bin" / "sbatch"
    trap.parent.mkdir()
    trap.write_text(f'#!/bin/sh\n{real} "$@" >/dev/null\nkill -KILL $PPID\n')
    trap.chmod(0o755)
    words = ["submit", "spec.yaml", "--id", "r1", "--slurm", "--store", slurm.store]
    env = {**slurm.cluster.env, "PATH": f"{trap.parent}:{slurm.cluster.env['PATH']}"}
    killed = subprocess.run([sys.executable, "-m", "buoy", *words], cwd=slurm.folder, env=env, check=False)
    assert killed.returncode == -9
    (planned,) = slurm.allocations()
    assert (planned["job_id"], planned["status"]) == (None, "pending")
    # The name is found at the first look, so nothing is submitted again.
    slurm("slurm", "regenerate", "r1", "--submit")
    slurm.until_status("completed")
    assert len(slurm.ids()) == 1 and sorted(slurm.seen()) == ["1", "2"]
    names = slurm.cluster.run("squeue", "-h", "-t", "all", "-o", "%j").stdout.split()
    assert names.count(planned["name"]) == 1


def test_regenerate_from_two_terminals_and_once_more_submits_nothing_twice(slurm: SlurmBatch) -> None:
    slurm.write(spec())
    slurm("submit", "spec.yaml", "--id", "r1")
    words = [sys.executable, "-m", "buoy", "slurm", "regenerate", "r1", "--submit", "--store", slurm.store]

    def call(_: int) -> str:
        done = subprocess.run(
            words, cwd=slurm.folder, env=slurm.cluster.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    slurm("slurm", "regenerate", "r1", "--dry-run")
    assert slurm.allocations() == []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(call, range(2)))
    slurm("slurm", "regenerate", "r1", "--submit")
    assert len(slurm.allocations()) == len(slurm.ids()) == 1
    (slurm.folder / "gate").touch()
    slurm.until_status("completed")
    assert "nothing to do" in slurm("slurm", "regenerate", "r1", "--submit")


def test_a_controller_that_is_down_changes_nothing(slurm: SlurmBatch) -> None:
    slurm.write(spec())
    submit(slurm)
    wait_until(lambda: len(slurm.seen()) == 2, "both jobs")
    slurm.cluster.stop_controller()
    try:
        slurm("sync-status", "r1", code=5)
        assert [each["status"] for each in slurm.allocations()] == ["pending"]
        (slurm.folder / "gate").touch()
        slurm.until_status("completed")
    finally:
        slurm.cluster.start_controller()
    assert sorted(slurm.seen()) == ["1", "2"]


def test_an_allocation_that_ends_while_it_waits_is_complete(slurm: SlurmBatch) -> None:
    slurm.write(spec("echo {k} >> witness"))
    fill = ["sbatch", "--parsable", "-N1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600"]
    blockers = [slurm.cluster.run(*fill) for _ in slurm.cluster.nodes]
    wait_until(lambda: all(slurm.cluster.state(each.stdout.strip()) == "RUNNING" for each in blockers), "full nodes")
    submit(slurm)
    (job_id,) = slurm.ids()
    slurm.cluster.run("scancel", job_id)
    wait_until(lambda: slurm.cluster.state(job_id) == "CANCELLED", "the cancellation")
    assert codes(slurm, code=1) == ["J2", "J7"]
    (ended,) = slurm.allocations()
    assert (ended["status"], ended["cause"]) == ("complete", "cancelled")


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_watch_brings_a_run_to_its_end_whose_allocation_is_cancelled_and_whose_job_fails(
    slurm: SlurmBatch, store_url: str
) -> None:
    """The second job needs more than the first allocation has: it gets one when it is ready."""
    slurm.store = store_url
    first = "echo a >> witness; case $(grep -c a witness) in 1) sleep 600;; 2) exit 9;; esac"
    second = {"id": "b", "needs": ["a"], "run": "echo b >> witness", "resources": {"cpus": 2}}
    slurm.write({"name": "chain", "steps": [{"id": "a", "run": first}, second]})
    submit(slurm)
    wait_until(lambda: slurm.seen() == ["a"], "the first job")
    words = ["watch", "r1", "--recover", "--retry-unknown", "--poll", "1s", "--store", slurm.store]
    with (slurm.folder / "watch.txt").open("w") as out:
        watching = subprocess.Popen(
            [sys.executable, "-m", "buoy", *words], env=dict(os.environ), stdout=out, stderr=out
        )
    try:
        wait_until(lambda: slurm.allocations()[0]["status"] == "active", "the first look")
        slurm.cluster.run("scancel", *slurm.ids())
        assert watching.wait(PATIENCE_S) == 0, (slurm.folder / "watch.txt").read_text() + slurm.outputs()
    finally:
        watching.kill()
        watching.wait()
    assert slurm.seen() == ["a", "a", "a", "b"] and slurm.status() == "completed"
    assert any(each["executed"] for each in actions(slurm) if each["scheduler"] == "c2mg0n1t_deferred")
    wait_until(lambda: not slurm.cluster.run("squeue", "-h", "-o", "%i").stdout.split(), "no allocation is left")


def actions(slurm: SlurmBatch) -> list[dict[str, Any]]:
    return list(slurm.json("slurm", "actions", "r1")["actions"])
