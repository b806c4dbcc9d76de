"""Batch runs on a real Slurm without accounting: only the controller knows what became of a job, for some minutes."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import SlurmBatch
from tests.slurm.scenario import Scenario, scenario, sweep

pytestmark = pytest.mark.slow

__all__ = ["scenario"]

# A job that notes its start and its end.
QUICK = "echo begun {k} >> witness; echo done {k} >> witness"


@pytest.fixture
def cluster(plain_cluster: Cluster) -> Cluster:
    """Without accounting."""
    return plain_cluster


def codes(slurm: SlurmBatch, *words: str, code: int = 0) -> list[str]:
    return [each["code"] for each in slurm.json("sync-status", "r1", *words, code=code)["orphans"]]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_two_hundred_jobs_run_to_their_end_in_allocations(scenario: Scenario, store_url: str) -> None:
    slurm = scenario.slurm
    slurm.store = store_url
    made = sweep(199, QUICK)
    made["steps"].append({"id": "last", "needs": ["job_{k}"], "run": QUICK.replace("{k}", "last")})
    slurm.write(made)
    shown = slurm.json("submit", "spec.yaml", "--slurm", "--max-allocations", "2", "--dry-run")
    assert [(each["jobs"], each["deferred"]) for each in shown["groups"]] == [(199, False), (1, True)]
    scenario.submit(made, "--max-allocations", "2")
    assert len(slurm.ids()) == 2
    scenario.watch()
    scenario.ended()
    assert len(scenario.begun()) == 200 and scenario.begun()[-1] == "last"
    settings = slurm.folder / ".buoy" / "slurm" / "r1" / "settings.sh"
    assert settings.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_jobs_of_a_crashed_node_run_again_on_the_word_of_the_scheduler(scenario: Scenario, store_url: str) -> None:
    """Nothing else proves the end of its runner: the server sees no process, and silence does not count."""
    slurm = scenario.slurm
    slurm.store = store_url
    scenario.submit(sweep())
    scenario.until_begun(2)
    assert codes(slurm) == [] and [each["status"] for each in slurm.allocations()] == ["active"]
    (job_id,) = slurm.ids()
    node = slurm.cluster.run("squeue", "-h", "-o", "%N", "-j", job_id).stdout.strip()
    slurm.cluster.crash_node(node)
    try:
        scenario.until(lambda: slurm.cluster.state(job_id) == "NODE_FAIL", "the end of the allocation")
        before = slurm("slurm", "allocations", "r1")
        dry = slurm.json("sync-status", "r1", "--dry-run", code=1)
        assert [(each["code"], each.get("cause")) for each in dry["orphans"]] == [("J1", "node_fail"), ("J7", None)]
        assert sorted(dry["orphans"][0]["jobs"]) == ["job_1", "job_2"]
        assert slurm("slurm", "allocations", "r1") == before, "a dry run changed something"
        assert codes(slurm, code=1) == ["J1", "J7"]
        assert codes(slurm, code=1) == ["J7"]
        assert [each["status"] for each in slurm.allocations()] == ["complete"]
        assert {(each["status"], each["cause"]) for each in slurm.jobs().values()} == {("failed", "allocation_lost")}
        recovered = slurm.json("recover", "r1", "--submit")
        assert len(recovered["slurm"]["allocated"]["submitted"]) == 1
        scenario.watch()
        scenario.open_gate()
        scenario.ended(twice={"1", "2"})
    finally:
        slurm.cluster.repair_node(node)


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_a_killed_runner_has_a_successor_in_its_allocation(scenario: Scenario, store_url: str) -> None:
    slurm = scenario.slurm
    slurm.store = store_url
    scenario.submit(sweep(1))
    scenario.watch()
    scenario.until_begun(1)
    runner = slurm.jobs()["job_1"]["runner"]
    (mine,) = [each for each in slurm.json("status")["runners"] if each["id"] == runner]
    slurm.cluster.kill_on(mine["host"], mine["pid"])
    scenario.until_begun(2)
    scenario.open_gate()
    scenario.ended(twice={"1"})
    assert len(slurm.ids()) == 1


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_submission_that_was_killed_after_sbatch_is_found_by_its_name(scenario: Scenario, store_url: str) -> None:
    slurm = scenario.slurm
    slurm.store = store_url
    slurm.write(sweep())
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
    scenario.watch()
    scenario.until(lambda: scenario.codes() == ["J5"], "the first look")
    scenario.open_gate()
    scenario.ended()
    assert len(slurm.ids()) == 1, scenario.told()
    names = slurm.cluster.run("squeue", "-h", "-t", "all", "-o", "%j").stdout.split()
    assert names.count(planned["name"]) == 1


@pytest.mark.parametrize("store_url", ["file"], indirect=True)
def test_regenerate_from_two_terminals_and_once_more_submits_nothing_twice(scenario: Scenario, store_url: str) -> None:
    slurm = scenario.slurm
    slurm.store = store_url
    slurm.write(sweep())
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
    scenario.watch()
    scenario.open_gate()
    scenario.ended()
    assert "nothing to do" in slurm("slurm", "regenerate", "r1", "--submit")


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_an_allocation_that_is_cancelled_while_it_waits_is_replaced(scenario: Scenario, store_url: str) -> None:
    slurm = scenario.slurm
    slurm.store = store_url
    slurm.cluster.close_nodes()
    scenario.submit(sweep(2, QUICK))
    (job_id,) = slurm.ids()
    slurm.cluster.run("scancel", job_id)
    scenario.until(lambda: slurm.cluster.state(job_id) == "CANCELLED", "the cancellation")
    assert codes(slurm, code=1) == ["J2", "J7"]
    (ended,) = slurm.allocations()
    assert (ended["status"], ended["cause"]) == ("complete", "cancelled")
    slurm.cluster.open_nodes()
    scenario.watch()
    scenario.ended()


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_watch_brings_a_run_to_its_end_whose_allocation_is_cancelled_and_whose_job_fails(
    scenario: Scenario, store_url: str
) -> None:
    """The second job needs more than the first allocation has: it gets one when it is ready."""
    slurm = scenario.slurm
    slurm.store = store_url
    first = "echo begun a >> witness; case $(grep -c 'begun a' witness) in 1) sleep 600;; 2) exit 9;; esac; "
    steps = [
        {"id": "a", "run": f"{first} echo done a >> witness"},
        {"id": "b", "needs": ["a"], "run": QUICK.replace("{k}", "b"), "resources": {"cpus": 2}},
    ]
    scenario.submit({"name": "chain", "steps": steps})
    scenario.watch("--retry-unknown")
    scenario.until_begun(1)
    scenario.until_active()
    slurm.cluster.run("scancel", *slurm.ids())
    assert scenario.completed() == {"a": 3, "b": 1}
    scenario.clean()
    fired = [each["scheduler"] for each in slurm.json("slurm", "actions", "r1")["actions"] if each["executed"]]
    assert "c2mg0n1t_deferred" in fired
