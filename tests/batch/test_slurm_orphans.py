"""Orphans of a run on Slurm: found with few questions, explained by `buoy why`, noticed by the next look of `watch`."""

from __future__ import annotations

import asyncio
from typing import Any

from buoy.core.batch.resources import Correction
from buoy.core.batch.sizing import Wishes
from buoy.core.ids import RunId
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm.tend import Tended, Tender, TendOptions
from buoy.wiring.app import open_client
from buoy.wiring.slurm import slurm_site
from tests.batch.slurm_plays import Played, played
from tests.patience import PATIENCE_S, wait_until

__all__ = ["played"]


def spec(jobs: int = 2, command: str = "echo {k} >> witness; sleep 600", **step: Any) -> dict[str, Any]:
    return {"name": "sweep", "parameters": {"k": f"1:{jobs}"}, "steps": [{"id": "job_{k}", "run": command, **step}]}


def submit(played: Played, *words: str, **given: Any) -> None:
    played.submit(spec(**given))
    played("submit", "spec.yaml", "--id", "r1", "--slurm", *words)


def run_one(played: Played) -> None:
    submit(played)
    played.runner_in(0)
    wait_until(lambda: len(played.seen()) == 2, "both jobs")
    played("sync-status", "r1")


def findings(played: Played) -> list[tuple[str, str]]:
    return [(each["code"], each["reason"]) for each in played.json("why", "r1")["findings"] if each["code"][0] == "J"]


def test_a_thousand_allocations_are_at_most_three_questions(played: Played) -> None:
    submit(played, "--max-allocations", "4", jobs=60, resources={"cpus": 4, "time": "50m"})
    played("slurm", "regenerate", "r1", "--max-allocations", "1000")
    more = spec(1_000, resources={"cpus": 4, "time": "50m"})
    played.submit(more, "r2")
    found = played.json("slurm", "regenerate", "r2", "--max-allocations", "1000")
    assert len(found["planned"]) == 1_000
    played.calls()
    assert played.json("sync-status", "r2", code=1)["live"] == 1_000
    assert played.calls() == ["squeue", "sacct"]
    for number in range(4):
        played.set(number, purged=True)
    orphans = played.json("sync-status", "r1", code=1)["orphans"]
    assert [each["code"] for each in orphans] == [*["J2"] * 4, "J7"]
    assert played.calls() == ["squeue", "sacct", "squeue"], "the queue is asked twice for what it does not show"


def test_an_active_allocation_that_ended_is_explained(played: Played) -> None:
    run_one(played)
    played.lose(0, "NODE_FAIL")
    found = findings(played)
    assert [code for code, _ in found] == ["J1", "J7"]
    assert "ended: node_fail (NODE_FAIL); 2 jobs lost with it" in found[0][1]
    said = played("why", "r1")
    assert "its Slurm job has ended" in said and "buoy sync-status r1" in said
    assert "run `buoy slurm regenerate r1 --submit" in played("sync-status", "r1", code=1)
    assert [code for code, _ in findings(played)] == ["J7"] and "slurm regenerate r1" in played("why", "r1")
    assert {each["cause"] for each in played.jobs().values()} == {"allocation_lost"}


def test_a_pending_allocation_that_was_cancelled_is_explained(played: Played) -> None:
    submit(played)
    played.set(0, state="CANCELLED")
    assert [code for code, _ in findings(played)] == ["J2", "J7"]


def test_a_requeued_allocation_is_explained_and_found_once(played: Played) -> None:
    submit(played, "--requeue")
    played.runner_in(0)
    wait_until(lambda: len(played.seen()) == 2, "both jobs")
    played("sync-status", "r1")
    played.lose(0, "PENDING")
    played.set(0, restart=1)
    assert "J6" in [code for code, _ in findings(played)]
    assert [each["code"] for each in played.json("sync-status", "r1")["orphans"]] == ["J6"]
    assert played.json("sync-status", "r1")["orphans"] == []
    (allocation,) = played.allocations()
    assert (allocation["status"], allocation["restart"]) == ("pending", 1)


def test_jobs_that_were_claimed_and_not_begun_are_told_as_healthy(played: Played) -> None:
    submit(played, "--max-allocations", "1", jobs=4, resources={"cpus": 2, "time": "20s"})
    played.runner_in(0)
    wait_until(lambda: len(played.seen()) == 2, "two jobs to run")
    played("sync-status", "r1")
    held = [each["job"] for each in played.jobs().values() if each["status"] == "pending"]
    played.lose(0, "TIMEOUT")
    shown = played.json("sync-status", "r1", "--dry-run", code=1)["orphans"][0]
    assert held and sorted(shown["claimed"]) == sorted(held) and len(shown["jobs"]) == 2
    assert "J4" in [code for code, _ in findings(played)]


def test_without_an_answer_of_slurm_the_explanation_says_so(played: Played) -> None:
    run_one(played)
    (played.slurm / "away").touch()
    said = played("why", "r1")
    assert "Slurm was not asked about its allocations" in said and "squeue failed" in said
    played("sync-status", "r1", code=5)


def test_an_intent_that_is_being_submitted_is_never_taken_for_one_that_vanished(played: Played) -> None:
    """It is in no queue before sbatch has ended, however often one looks."""
    played.submit(spec())
    played("slurm", "regenerate", "r1")
    for _ in range(2):
        assert played.json("sync-status", "r1", code=1)["live"] == 1
    (planned,) = played.allocations()
    assert (planned["status"], planned["job_id"]) == ("pending", None)


async def looks(played: Played, changes: list[dict[str, Any]]) -> list[tuple[Tended, list[str]]]:
    """What a watch does at each look, and which commands of Slurm that takes; before each the queue changes."""
    found = []
    async with open_client(played.store, actor="me") as client:
        site = slurm_site(client, played.store, RunId("r1"), (await read_batch(client, RunId("r1"))).plan)
        tender = Tender(site, RunId("r1"), TendOptions(wishes=lambda asked: Wishes(), rule=Correction()))
        for change in changes:
            if change:
                played.set(0, **change)
            played.calls()
            found.append((await tender.look(), played.calls()))
    return found


def test_a_quick_check_of_the_queue_comes_first(played: Played) -> None:
    submit(played)
    changes: list[dict[str, Any]] = [{}, {}, {}, {"state": "CANCELLED"}]
    found = asyncio.run(looks(played, changes))
    assert [each for _, each in found[:3]] == [["squeue"]] * 3
    assert all(tended == Tended() for tended, _ in found[:3])
    lost, asked = found[3]
    assert [each.code for each in lost.orphans] == ["J2", "J7"] and len(lost.submitted) == 1
    assert asked[:3] == ["squeue", "squeue", "sacct"], "the quick check, then the full look"


def test_a_lost_allocation_is_replaced_in_the_look_that_notices_it(played: Played) -> None:
    submit(played)
    found = asyncio.run(looks(played, [{"state": "RUNNING"}, {"state": "PREEMPTED"}, {}]))
    assert [len(tended.submitted) for tended, _ in found] == [0, 1, 0]
    assert len(played.queue) == 2


def test_a_watch_without_an_answer_changes_nothing(played: Played) -> None:
    submit(played)
    (played.slurm / "away").touch()
    ((tended, _),) = asyncio.run(looks(played, [{}]))
    assert tended.unknown is not None and "squeue failed" in tended.unknown


def test_a_run_whose_allocation_is_queued_waits_and_is_not_stalled(played: Played) -> None:
    submit(played)
    told = []

    def in_doubt() -> bool:
        told.append(played.json("watch", "r1", "--once", code=4)["trouble"])
        return told[-1] is not None

    wait_until(in_doubt, "a look that sees no worker")
    assert told[-1] == "waiting for Slurm: 1 allocation, 0 of them running"
    assert played.json("jobs", "r1")["trouble"] == told[-1]
    assert played.json("status")["troubles"] == [], "its runner comes with its allocation"
    listed = played.json("ps")["runs"][0]
    assert (listed["health"], listed["reasons"]) == ("idle", ["it waits for Slurm: 1 allocation asked for"]), listed
    told_all = played.json("why", "--all")
    assert told_all["troubles"] == [], told_all
    said = played.json("why", "r1")
    assert said["health"] == "idle" and said["wrong"] == [], said
    assert said["headline"] == "r1 waits for Slurm to start its first runner."
    assert "1 allocation" in said["now"] and any("sync-status r1" in each for each in said["you_can"])
    played.set(0, state="CANCELLED")
    played("sync-status", "r1", code=1)
    assert played.json("ps")["runs"][0]["health"] == "stalled", "nothing is on its way any more"
    assert len(played.json("status", code=1)["troubles"]) == 3
    assert [each["code"] for each in played.json("why", "--all", code=1)["troubles"]] == ["Q5"]


def test_a_run_whose_next_allocation_is_queued_waits_with_its_lots(played: Played) -> None:
    run_one(played)
    played.lose(0, "NODE_FAIL")
    played("sync-status", "r1", code=1)
    assert played.json("why", "--all", code=1)["troubles"]
    played("slurm", "regenerate", "r1", "--submit")
    told = played.json("why", "--all")
    assert told["troubles"] == [], told
    assert played.json("why", "r1")["headline"] == "r1 waits for Slurm to start its next runner."
    listed = [*played.json("ps")["runs"], *played.json("ps", "--parent", "r1")["runs"]]
    found = [(each["document"]["workflow"], each["health"]) for each in listed]
    assert found == [("spec:sweep", "idle"), ("lot:", "idle")]


def test_a_paused_run_stays_healthy_though_it_has_not_read_what_became_of_its_allocations(played: Played) -> None:
    played.submit({"name": "fails", "steps": [{"id": "job", "run": "[ -e go ]"}]})
    played("slurm", "regenerate", "r1", "--submit")
    assert played.runner_in(0).wait(PATIENCE_S) == 4
    played.lose(0, "COMPLETED")
    assert played.json("sync-status", "r1")["orphans"] != []
    assert (shown := played.json("ps")["runs"][0])["health"] == "idle", shown
    assert played.json("jobs", "r1")["trouble"] is None
    said = played.json("why", "r1")
    assert (said["health"], said["wrong"]) == ("idle", ["1 job failed"]), said
    played("reset", "r1", "job")
    assert played.json("ps")["runs"][0]["health"] == "stalled", "a runner must read the reset"


def test_jobs_that_no_live_allocation_could_run_are_stuck_although_others_live(played: Played) -> None:
    made = spec(1)
    made["steps"].append({"id": "large", "needs": [], "run": "sleep 600", "resources": {"cpus": 3}})
    played.submit(made)
    played("submit", "spec.yaml", "--id", "r1", "--slurm")
    assert len(played.queue) == 2
    large = next(number for number, each in enumerate(played.queue) if "--cpus-per-task=3" in each["options"])
    played.set(large, state="PREEMPTED")
    found = played.json("sync-status", "r1", code=1)
    assert (found["stuck"], found["live"], [each["code"] for each in found["orphans"]]) == (True, 1, ["J2", "J7"])
    played("watch", "r1", "--auto-schedule", "--once", code=4)
    assert ["--cpus-per-task=3" in each["options"] for each in played.queue].count(True) == 2


def test_a_watch_gives_up_allocations_that_fail_before_a_runner_starts(played: Played) -> None:
    submit(played, "--prologue", "module load nothing")

    async def fail_all() -> list[Tended]:
        found: list[Tended] = []
        async with open_client(played.store, actor="me") as client:
            site = slurm_site(client, played.store, RunId("r1"), (await read_batch(client, RunId("r1"))).plan)
            tender = Tender(site, RunId("r1"), TendOptions(wishes=lambda asked: Wishes(), rule=Correction()))
            while len(found) < 20 and not (found and found[-1].over):
                for number in range(len(played.queue)):
                    played.set(number, state="FAILED")
                found.append(await tender.look())
        return found

    found = asyncio.run(fail_all())
    assert len(played.queue) == 5 and found[-1].over
    assert "allocations failed 5 times before a runner started" in (found[-1].given_up or "")
