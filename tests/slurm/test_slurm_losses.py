"""Allocations that are lost under a run: the scheduler's word, in each of its forms, with accounting."""

from __future__ import annotations

import shlex
import sys

import pytest

from tests.slurm.conftest import SlurmBatch
from tests.slurm.scenario import Scenario, scenario, sweep

pytestmark = pytest.mark.slow

__all__ = ["scenario"]


def preempt(slurm: SlurmBatch, job_id: str) -> None:
    """A job of a higher partition takes the node of this one for some seconds."""
    node = slurm.cluster.run("squeue", "-h", "-o", "%N", "-j", job_id).stdout.strip()
    slurm.cluster.run("sbatch", "-p", "high", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")


def running_on(slurm: SlurmBatch, job_id: str) -> str:
    return slurm.cluster.run("squeue", "-h", "-o", "%N", "-j", job_id).stdout.strip()


@pytest.mark.parametrize(("partition", "store_url"), [("main", "postgres"), ("spot", "sqlite")], indirect=["store_url"])
def test_a_preempted_allocation_is_replaced(scenario: Scenario, store_url: str, partition: str) -> None:
    """One partition preempts by requeue, which the allocation has forbidden; the other one by cancel."""
    slurm, job_id = scenario.slurm, _under_way(scenario, store_url, "--partition", partition)
    preempt(slurm, job_id)
    scenario.until(lambda: slurm.cluster.state(job_id) == "PREEMPTED", "the preemption")
    scenario.until_begun(4)
    scenario.open_gate()
    scenario.ended(twice={"1", "2"})
    assert slurm.allocations()[0]["cause"] == "preempted" and scenario.codes()[0] == "J1"


@pytest.mark.parametrize(("loss", "store_url"), [("preemption", "http"), ("crash", "postgres")], indirect=["store_url"])
def test_an_allocation_that_is_queued_again_comes_back_under_its_id(
    scenario: Scenario, store_url: str, loss: str
) -> None:
    """With --requeue the same id waits, and starts again with a higher restart count."""
    slurm, job_id = scenario.slurm, _under_way(scenario, store_url, "--requeue")
    node = running_on(slurm, job_id)
    if loss == "crash":
        slurm.cluster.crash_node(node)
    else:
        preempt(slurm, job_id)
    try:
        scenario.until(
            lambda: "Restarts=1" in slurm.cluster.run("scontrol", "show", "job", job_id).stdout, "the requeue"
        )
        scenario.until_begun(4)
        scenario.open_gate()
        scenario.ended(twice={"1", "2"})
    finally:
        if loss == "crash":
            slurm.cluster.repair_node(node)
    assert scenario.codes()[0] == "J6" and slurm.ids() == [job_id], scenario.told()


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_an_allocation_that_met_its_time_limit_is_replaced(scenario: Scenario, store_url: str) -> None:
    slurm, job_id = scenario.slurm, _under_way(scenario, store_url)
    # Slurm looks at limits every 30 seconds, and an operator can shorten them.
    slurm.cluster.run("scontrol", "update", f"jobid={job_id}", "endtime=now")
    scenario.until_begun(4)
    scenario.open_gate()
    scenario.ended(twice={"1", "2"})
    assert slurm.allocations()[0]["cause"] == "timeout"


def _under_way(scenario: Scenario, store_url: str, *words: str) -> str:
    """A run of two jobs, both begun in one allocation that the watch has seen; its id."""
    scenario.slurm.store = store_url
    scenario.submit(sweep(), *words)
    scenario.watch(*words)
    scenario.until_begun(2)
    scenario.until_active()
    (job_id,) = scenario.slurm.ids()
    return job_id


# Takes so much memory as no limit of the first try allows, and notes its start and its end. The first try holds what it
# took until it is killed. The runner looks at memory from time to time, and a quick job ends before the first look.
_HUNGRY = (
    "echo begun {{k}} >> witness; hold=0; [ -e tried ] || hold=600; touch tried; "
    "{python} -c 'import sys, time; taken = bytearray({size} * 2**20); time.sleep(int(sys.argv[1]))' $hold "
    "&& echo done {{k}} >> witness"
)


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_job_that_is_out_of_memory_gets_more_once_and_succeeds(scenario: Scenario, store_url: str) -> None:
    """The runner enforces the limit of the job; the rest of the allocation is not touched."""
    scenario.slurm.store = store_url
    command = _HUNGRY.format(python=shlex.quote(sys.executable), size=150)
    scenario.submit(sweep(1, command, resources={"memory": "128MiB"}))
    scenario.watch()
    scenario.ended(twice={"1"})
    assert scenario.told().count("reset 1 job") == 1


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_an_allocation_that_is_out_of_memory_is_replaced_by_a_larger_one(scenario: Scenario, store_url: str) -> None:
    """The job has no limit of its own: the kernel kills it, and Slurm calls only the step OUT_OF_MEMORY."""
    if not scenario.slurm.cluster.limits_memory:
        pytest.skip("this machine has no control groups of version 1 that limit memory")
    scenario.slurm.store = store_url
    command = _HUNGRY.format(python=shlex.quote(sys.executable), size=300)
    scenario.submit(sweep(1, command))
    scenario.watch()
    scenario.ended(twice={"1"})
    assert scenario.told().count("reset 1 job") == 1
