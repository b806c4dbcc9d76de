"""Allocations that were planned and not submitted: their process was killed before sbatch, or left them for later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from buoy.core.batch.resources import Correction
from buoy.core.batch.sizing import Wishes
from buoy.core.ids import RunId
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm import submission, tend
from buoy.operations.slurm.submission import submit_planned
from buoy.operations.slurm.tend import Tended, Tender, TendOptions
from buoy.wiring.app import open_client
from buoy.wiring.slurm import slurm_site
from tests.batch.slurm_plays import Played, played
from tests.patience import until

__all__ = ["played"]

STEPS = {"name": "sweep", "parameters": {"k": "1:2"}, "steps": [{"id": "job_{k}", "run": "sleep 600"}]}
OPTIONS = TendOptions(wishes=lambda asked: Wishes(), rule=Correction())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An intent counts as left by its process after less than the 45 s of a real sbatch."""
    for module in (submission, tend):
        monkeypatch.setattr(module, "INTENT_S", 0.05)
    yield


def _planned(played: Played) -> None:
    played.submit(STEPS)
    played("slurm", "regenerate", "r1")


def test_a_watch_submits_what_was_planned_and_is_in_no_queue(played: Played) -> None:
    _planned(played)

    async def looks() -> list[Tended]:
        async with open_client(played.store, actor="me") as client:
            site = slurm_site(client, played.store, RunId("r1"), (await read_batch(client, RunId("r1"))).plan)
            tender, found = Tender(site, RunId("r1"), OPTIONS), list[Tended]()

            async def submits() -> bool:
                found.append(await tender.look())
                return len(found[-1].submitted) > 0

            await until(submits, "the submission")
            return [*found, await tender.look()]

    told = asyncio.run(looks())
    found = [len(each.submitted) for each in told]
    assert found[0] == 0, "a sbatch may run"
    assert found[-2:] == [1, 0]
    codes = [[orphan.code for orphan in each.orphans] for each in told[:-2]]
    assert codes[0] == ["J7"] and not any(codes[1:]), "the watch says once why jobs wait"
    (allocation,) = played.allocations()
    assert [(each["id"], each["name"]) for each in played.queue] == [(allocation["job_id"], allocation["name"])]


def test_a_single_look_submits_it_after_it_has_waited_for_another_process(played: Played) -> None:
    _planned(played)
    said = played.watch()
    assert "asked for" in said and len(played.queue) == 1, said


def test_of_two_commands_that_find_an_old_plan_one_submits_it(played: Played) -> None:
    _planned(played)

    async def both() -> list[int]:
        async with open_client(played.store, actor="a") as one, open_client(played.store, actor="b") as two:
            plan = (await read_batch(one, RunId("r1"))).plan
            sites = [slurm_site(client, played.store, RunId("r1"), plan) for client in (one, two)]
            found = await asyncio.gather(*(submit_planned(site, RunId("r1"), ()) for site in sites))
            return sorted(len(each) for each in found)

    assert asyncio.run(both()) == [0, 1]
    assert len(played.queue) == 1


def test_a_plan_that_was_not_submitted_is_no_help_on_its_way(played: Played) -> None:
    _planned(played)
    assert [each["code"] for each in played.json("sync-status", "r1", code=1)["orphans"]] == ["J7"]
    assert played.json("ps")["runs"][0]["health"] == "stalled"
    assert played.json("jobs", "r1")["trouble"].startswith("stalled")
    said = played.json("why", "r1")
    assert any("J7" in each for each in said["wrong"]), said
    assert any("regenerate r1 --submit" in each for each in said["you_can"]), said
    played("slurm", "regenerate", "r1", "--submit")
    assert played.json("ps")["runs"][0]["health"] == "idle"
    played("sync-status", "r1")


def test_a_run_that_ends_leaves_no_plan(played: Played) -> None:
    _planned(played)
    played("cancel", "r1")
    assert {each["status"] for each in played.allocations()} == {"complete"}
    assert played.queue == []
