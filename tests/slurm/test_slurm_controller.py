"""A controller that is away, or comes back without its last seconds: nothing is concluded from silence."""

from __future__ import annotations

import shutil
import signal
import time

import pytest

from tests.slurm.conftest import SlurmBatch
from tests.slurm.scenario import Scenario, scenario, sweep

pytestmark = pytest.mark.slow

__all__ = ["scenario"]

_AWAY_S = 30.0


class Amnesia:
    """The controller's state of an earlier moment: after a crash it comes back with that."""

    def __init__(self, slurm: SlurmBatch) -> None:
        self._cluster = slurm.cluster
        self._state = slurm.cluster.folder / "state"
        self._kept = slurm.folder / "kept"
        self._cluster.stop_controller()  # which writes all of it
        shutil.copytree(self._state, self._kept)
        self._cluster.start_controller()

    def strike(self) -> None:
        self._cluster.stop_controller(signal.SIGKILL)
        shutil.rmtree(self._state)
        shutil.copytree(self._kept, self._state)
        self._cluster.start_controller()


@pytest.mark.parametrize("store_url", ["file"], indirect=True)
def test_a_controller_that_is_away_for_half_a_minute_costs_nothing(scenario: Scenario, store_url: str) -> None:
    """All runners are on one machine here, so that a folder is a store for them."""
    slurm = scenario.slurm
    slurm.store = store_url
    scenario.submit(sweep())
    scenario.watch()
    scenario.until_begun(2)
    scenario.until_active()
    slurm.cluster.stop_controller()
    away = time.monotonic()
    try:
        scenario.until(lambda: "nothing was changed" in scenario.told(), "a word about it")
        wait = _AWAY_S - (time.monotonic() - away)
        time.sleep(max(0.0, wait))
        assert [each["status"] for each in slurm.allocations()] == ["active"] and scenario.codes() == []
        slurm("sync-status", "r1", code=5)
    finally:
        slurm.cluster.start_controller()
    scenario.open_gate()
    scenario.ended()


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_a_controller_that_forgot_an_allocation_and_gave_its_id_away(scenario: Scenario, store_url: str) -> None:
    """Killed with its last seconds unwritten: what runs is killed as unknown, and a stranger gets the id."""
    slurm = scenario.slurm
    slurm.store = store_url
    before = Amnesia(slurm)
    scenario.submit(sweep())
    scenario.watch()
    scenario.until_begun(2)
    scenario.until_active()
    (job_id,) = slurm.ids()
    before.strike()
    stranger = slurm.cluster.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 3").stdout.strip()
    assert stranger == job_id
    scenario.until_begun(4)
    scenario.open_gate()
    scenario.ended(twice={"1", "2"})


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_controller_that_starts_an_allocation_again_with_the_same_restart_count(
    scenario: Scenario, store_url: str
) -> None:
    """Killed with its last seconds unwritten: it has the job as waiting, and starts it a second time under its id.

    Sometimes it takes the end of the first start for that of the second: then another allocation follows.
    """
    slurm = scenario.slurm
    slurm.store = store_url
    slurm.cluster.close_nodes()
    scenario.submit(sweep())
    before = Amnesia(slurm)
    slurm.cluster.open_nodes()
    scenario.watch()
    scenario.until_begun(2)
    scenario.until_active()
    (job_id,) = slurm.ids()
    before.strike()
    slurm.cluster.open_nodes()
    scenario.until_begun(4)
    assert "Restarts=0" in slurm.cluster.run("scontrol", "show", "job", job_id).stdout
    scenario.open_gate()
    assert set(scenario.completed().values()) <= {2, 3}, scenario.told()
    scenario.clean()
    assert slurm.allocations()[0]["restart"] == 0, scenario.told()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_an_allocation_that_vanished_while_it_waited_is_replaced(scenario: Scenario, store_url: str) -> None:
    slurm = scenario.slurm
    slurm.store = store_url
    fill = ["sbatch", "--parsable", "-N1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600"]
    blockers = [slurm.cluster.run(*fill).stdout.strip() for _ in slurm.cluster.nodes]
    scenario.until(lambda: {slurm.cluster.state(each) for each in blockers} == {"RUNNING"}, "full nodes")
    before = Amnesia(slurm)
    scenario.submit(sweep())
    scenario.watch()
    (job_id,) = slurm.ids()
    scenario.until(lambda: "2 uninitialized" in scenario.told(), "the first look")
    before.strike()
    assert slurm.cluster.state(job_id) == "" and slurm.cluster.state(blockers[0]) == "RUNNING"
    slurm.cluster.run("scancel", *blockers)
    scenario.open_gate()
    scenario.ended()
    assert slurm.allocations()[0]["cause"] == "unknown" and scenario.codes()[0] == "J2", scenario.told()
