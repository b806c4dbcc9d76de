"""The watch on a real Slurm: it dies, its server goes away, jobs run while it recovers, and how many looks it needs."""

from __future__ import annotations

import asyncio

import pytest

from buoy.core.batch.resources import Correction
from buoy.core.batch.sizing import Wishes
from buoy.core.ids import RunId
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm.tend import Tended, Tender, TendOptions
from buoy.wiring.app import open_client
from buoy.wiring.slurm import slurm_site
from tests.batch.test_server_away import Server, server
from tests.slurm.scenario import GATED, Scenario, scenario, sweep

pytestmark = pytest.mark.slow

__all__ = ["scenario", "server"]


def test_a_server_that_is_away_while_jobs_run_costs_nothing(scenario: Scenario, server: Server) -> None:
    """Jobs end without it; the watch and the runner wait for it."""
    scenario.slurm.store = server.url
    scenario.submit(sweep(4))
    scenario.watch()
    scenario.until_begun(4)
    server.kill()
    scenario.open_gate()
    scenario.until(lambda: sum(each.startswith("done ") for each in scenario.slurm.seen()) == 4, "the ends of the jobs")
    scenario.until(lambda: "nothing was changed" in scenario.told(), "a word of the watch")
    server.start()
    scenario.ended()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_killed_watch_continues_where_it_was(scenario: Scenario, store_url: str) -> None:
    """Killed once while its allocation runs, which is then lost, and once while the next one runs."""
    slurm = scenario.slurm
    slurm.store = store_url
    scenario.submit(sweep())
    scenario.watch()
    scenario.until_begun(2)
    scenario.kill_watch()
    slurm.cluster.run("scancel", *slurm.ids())
    scenario.watch()
    scenario.until_begun(4)
    scenario.kill_watch()
    scenario.watch()
    scenario.open_gate()
    scenario.ended(twice={"1", "2"})
    assert len(slurm.ids()) == 2


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_recover_while_jobs_run_leaves_them_alone(scenario: Scenario, store_url: str) -> None:
    """One job failed for good while another one runs: it is reset, and no allocation is asked for in vain."""
    slurm = scenario.slurm
    slurm.store = store_url
    scenario.submit(sweep(3, f"if [ {{k}} = 1 ] && [ ! -e fixed ]; then echo begun 1 >> witness; exit 9; fi; {GATED}"))
    scenario.until_begun(3)
    scenario.until(lambda: slurm.jobs()["job_1"]["status"] == "failed", "the failure")
    (slurm.folder / "fixed").touch()
    recovered = slurm.json("recover", "r1", "--retry-unknown", "--submit")
    assert [each["job"] for each in recovered["jobs"]["jobs"]] == ["job_1"]
    scenario.until(lambda: scenario.begun().count("1") == 2, "the second start of the failed job")
    assert {slurm.jobs()[each]["status"] for each in ("job_2", "job_3")} == {"running"}
    assert len(slurm.ids()) == 1
    scenario.watch()
    scenario.open_gate()
    scenario.ended(twice={"1"})


@pytest.mark.parametrize("store_url", ["http"], indirect=True)
def test_a_chain_inside_one_deferred_group_comes_to_its_end(scenario: Scenario, store_url: str) -> None:
    """All but the first are of one group that waits: it gets an allocation when any of them is ready, not all."""
    scenario.slurm.store = store_url
    note = "echo begun {0} >> witness; echo done {0} >> witness"
    first = {"id": "a", "run": note.format("a"), "resources": {"cpus": 1}}
    steps = [first] + [
        {"id": after, "run": note.format(after), "needs": [before], "resources": {"cpus": 2}}
        for before, after in zip("abcd", "bcde", strict=True)
    ]
    scenario.submit({"name": "chain", "steps": steps})
    scenario.watch()
    scenario.ended()
    assert [each for each in scenario.slurm.seen() if each.startswith("begun")] == [f"begun {each}" for each in "abcde"]
    assert len(scenario.slurm.ids()) == 2


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_lost_allocation_is_noticed_by_the_next_look_and_replaced_by_it(scenario: Scenario, store_url: str) -> None:
    """Counted in looks: the first after the loss finds it and asks for the next; the second sees jobs run again."""
    slurm = scenario.slurm
    slurm.store = store_url
    # Jobs that end at the first signal let their runner leave before Slurm kills it: nothing would be lost with it.
    scenario.submit(sweep(command=f"trap '' TERM; {GATED}"))
    scenario.until_begun(2)
    (job_id,) = slurm.ids()
    asyncio.run(_looks(scenario, job_id))
    assert {each["status"] for each in slurm.jobs().values()} == {"running"}
    scenario.watch()
    scenario.open_gate()
    scenario.ended(twice={"1", "2"})


async def _looks(scenario: Scenario, job_id: str) -> None:
    slurm, run_id = scenario.slurm, RunId("r1")
    async with open_client(slurm.store) as client:
        site = slurm_site(client, slurm.store, run_id, (await read_batch(client, run_id)).plan)
        tender = Tender(site, run_id, TendOptions(wishes=lambda asked: Wishes(), rule=Correction()))
        assert await tender.look() == Tended()
        slurm.cluster.run("scancel", job_id)
        scenario.until(lambda: slurm.cluster.state(job_id) == "CANCELLED", "the loss")
        first = await tender.look()
        assert [(each.code, sorted(each.jobs)) for each in first.orphans] == [
            ("J1", ["job_1", "job_2"]),
            ("J7", []),
        ]
        assert len(first.submitted) == 1
        # The queue's own wait.
        scenario.until(lambda: slurm.cluster.state(str(first.submitted[0].job_id)) == "RUNNING", "its start")
        scenario.until_begun(4)
        assert await tender.look() == Tended()
