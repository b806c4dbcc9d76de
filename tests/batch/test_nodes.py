"""Jobs that need several machines: lists of machines, which runner claims such a job, and what it learns about them."""

from __future__ import annotations

import pytest

from buoy.core.batch.node_list import allocated_nodes, node_names
from buoy.core.batch.resources import Capacity
from buoy.core.spec.model import Resources
from buoy.engine.services.room import Room
from buoy.errors import BadInput
from buoy.testing.clock import ManualClock
from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n1,m-2.site", ("n1", "m-2.site")),
        ("n[08-10,3],login", ("n08", "n09", "n10", "n3", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n1,n1", ("n1",)),
    ],
)
def test_lists_of_machines_are_those_of_slurm(text: str, names: tuple[str, ...]) -> None:
    assert node_names(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1", "n[2-1]", "n[1-999999999]", "n[a]", "a b", ",", "n[1-]", "[1-9999]n[1-9999]"]
)
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"list of machines|too many machines"):
        node_names(text)


def test_a_runner_beside_others_in_its_allocation_has_its_own_machine_only() -> None:
    job = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"}
    assert allocated_nodes(job) == ("n1", "n2", "n3")
    assert allocated_nodes({**job, "SLURM_STEP_NUM_TASKS": "1"}) == ("n1", "n2", "n3")
    assert allocated_nodes({**job, "SLURM_STEP_NUM_TASKS": "3"}) == ()
    assert allocated_nodes({}) == ()


def test_other_machines_belong_to_one_job_at_a_time() -> None:
    room = Room(Capacity(8, 8 * GIB, nodes=3), ManualClock(), "n1", (), ("n1", "n2", "n3"))
    two = Resources(nodes=2)
    assert [room.reserve(name, two) for name in ("a", "b", "c")] == [True, True, False]
    assert room.reserve("one", Resources())
    room.release("a")
    assert not room.ever(Resources(nodes=4))
    assert not room.reserve("d", Resources(nodes=3))
    room.release("b")
    assert room.reserve("d", Resources(nodes=3))


def test_only_a_runner_with_several_machines_claims_such_a_job(batch: Batch) -> None:
    steps = [
        {"id": "wide", "run": "echo $BUOY_NODELIST >> witness", "resources": {"nodes": 2}},
        {"id": "small", "needs": [], "run": "echo ${BUOY_NODELIST-none} >> witness"},
    ]
    batch.submit({"name": "wide", "steps": steps})
    single = batch.runner("--cpus", "1")
    wait_until(lambda: batch.seen() == ["none"])
    wait_until(lambda: "no live runner takes jobs that need 1 cpu, 2 nodes" in batch("why", "r1"))
    several = batch.process("runner", "--run", "r1", "--nodes", "m[1-2]", env={"SLURMD_NODENAME": "m1"})
    assert several.wait(PATIENCE_S) == 0
    assert single.wait(PATIENCE_S) == 0
    assert batch.seen() == ["none", "m1,m2"]
    assert "jobs of r1.c1mg0n2t do not fit here: it needs 2 nodes, and the runner has 1" in batch.said()


def test_a_runner_alone_in_a_slurm_job_has_its_machines(batch: Batch) -> None:
    batch.submit(
        {"name": "wide", "steps": [{"id": "wide", "run": "echo $BUOY_NODELIST >> witness", "resources": {"nodes": 3}}]}
    )
    slurm = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURMD_NODENAME": "n2", "SLURM_JOB_ID": "7"}
    assert batch.process("runner", "--run", "r1", env=slurm).wait(PATIENCE_S) == 0
    assert batch.seen() == ["n2,n1,n3"]
    assert "on each of 3 nodes" in batch.said()
