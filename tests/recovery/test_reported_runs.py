"""A scan that reports: the caller's own function gets each run, and a queue that is not Buoy's is asked about tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import msgspec
import pytest

import buoy
from buoy.core.bundle.format import Bundle
from buoy.core.ids import RunId
from buoy.core.log.lifecycle import Status
from buoy.operations.maintenance.bundles import import_run
from buoy.ports.records import Released
from tests.core.logbook import claimed, completed, started

from .harness import KINDS, RecoveryHarness, created, play
from .test_recovery_api import POLICIES, orphaned
from .test_sweep import UNDER_WAY, left_behind


@pytest.mark.parametrize("kind", KINDS)
def test_each_run_in_trouble_is_handed_to_the_caller_and_nothing_is_changed(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        names = [f"to-{policy}" for policy in POLICIES]
        before = [await harness.record(name) for name in names]
        got: list[buoy.Found] = []

        async def report(found: buoy.Found) -> None:
            await asyncio.sleep(0)
            got.append(found)

        seen = await buoy.scan(harness.client, report=report)
        assert tuple(got) == seen.found and {each.run_id for each in got} == set(names)
        assert {each.task_id for each in got} == {f"{name}:orchestrate:1" for name in names}
        assert [await harness.record(name) for name in names] == before

    play(tmp_path, test, kind)


def test_the_caller_recovers_what_it_gets(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        done: dict[str, str] = {}

        async def report(found: buoy.Found) -> None:
            done[found.run_id] = (await buoy.recover(found.run_id, harness.client)).action

        await buoy.scan(harness.client, report=report)
        assert done == {f"to-{policy}": policy for policy in POLICIES}
        assert (await buoy.scan(harness.client)).found == ()

    play(tmp_path, test)


def test_a_report_that_fails_stops_no_other_run(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await orphaned(harness, "one")
        await orphaned(harness, "two")
        got: list[str] = []

        def report(found: buoy.Found) -> None:
            got.append(found.run_id)
            raise ConnectionError("the queue is down")

        seen = await buoy.scan(harness.client, report=report)
        assert sorted(got) == ["one", "two"]
        lines = [f"{run}: the report function failed: ConnectionError: the queue is down" for run in ("one", "two")]
        assert sorted(seen.troubles) == lines

    play(tmp_path, test)


async def of_each_kind(harness: RecoveryHarness) -> None:
    """One of each: executing, waiting, due, lost with its runner, and broken in itself."""
    living, dead = await harness.runner("living", workflows={"order": ("",)}), await harness.runner("r1", dead=True)
    await harness.left_by(living, "executing", created(), *UNDER_WAY)
    later = Released(due_at=harness.clock.now() + 900.0, now=harness.clock.now())
    await harness.plant("waiting", created(), claimed("r1"), task=later)
    await harness.plant(
        "due", created(), *UNDER_WAY, task=Released(due_at=harness.clock.now(), now=harness.clock.now())
    )
    await harness.left_by(dead, "dead", created(), *UNDER_WAY)
    done = (claimed("r1"), started("a#1"), completed("a#1"))
    lie = {"status": Status.AWAITING_INPUT}
    await harness.plant(
        "broken", created(), *done, task=Released(due_at=harness.clock.now(), now=harness.clock.now()), lie=lie
    )


@pytest.mark.parametrize(
    ("alive", "reported"),
    [
        (True, {"broken": "A1"}),
        (False, {"due": "Q1", "dead": "H1", "broken": "A1"}),
        (None, {"due": "Q1", "dead": "H1", "broken": "A1"}),
    ],
)
def test_a_run_is_reported_by_what_the_callers_queue_says(
    tmp_path: Path, alive: bool | None, reported: dict[str, str]
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await of_each_kind(harness)
        asked: dict[str, buoy.TaskView] = {}

        async def checker(task: buoy.TaskView) -> bool | None:
            asked[task.run_id] = task
            return alive

        seen = await buoy.scan(harness.client, stale_after=0, task_checker=checker)
        assert {each.run_id: str(each.reason)[:2] for each in seen.found} == reported
        assert set(asked) == {"due", "dead", "broken"}, "runs that execute or wait are not asked about"
        assert (asked["due"].task_id, asked["due"].queue) == ("due:orchestrate:1", "default")
        assert seen.healthy == 5 - len(reported)

    play(tmp_path, test)


def test_a_task_that_is_gone_counts_even_if_no_worker_of_buoys_is_alive(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant(
            "due", created(), *UNDER_WAY, task=Released(due_at=harness.clock.now(), now=harness.clock.now())
        )
        plain = await buoy.scan(harness.client, stale_after=0)
        assert [each.action for each in plain.found] == ["report"]
        seen = await buoy.scan(harness.client, stale_after=0, task_checker=lambda task: False)
        assert [(each.action, each.reason) for each in seen.found] == [
            ("resume", "Q1: its task due:orchestrate:1 is not alive in the caller's queue")
        ]
        assert (await buoy.scan(harness.client, stale_after=0, task_checker=lambda task: True)).found == ()

    play(tmp_path, test)


@pytest.mark.parametrize("said", [ConnectionError("no broker"), "completed"])
def test_a_check_that_fails_is_unknown_and_never_gone(tmp_path: Path, said: object) -> None:
    def checker(task: buoy.TaskView) -> bool:
        if isinstance(said, Exception):
            raise said
        return cast(bool, said)

    async def test(harness: RecoveryHarness) -> None:
        await harness.plant(
            "due", created(), *UNDER_WAY, task=Released(due_at=harness.clock.now(), now=harness.clock.now())
        )
        seen = await buoy.scan(harness.client, stale_after=0, task_checker=checker)
        assert [(each.action, seen.unknown) for each in seen.found] == [("unknown", 1)]
        assert str(seen.found[0].error).startswith("the task checker failed: ")

    play(tmp_path, test)


def test_a_run_that_never_had_a_task_is_not_asked_about(tmp_path: Path) -> None:
    """Another system's document: it has no task of ours."""

    async def test(harness: RecoveryHarness) -> None:
        await orphaned(harness, "ours")
        theirs = msgspec.structs.replace((await harness.record("ours")).document, run_id=RunId("theirs"))
        found = Bundle(run_id=RunId("theirs"), log=(), document=msgspec.Raw(msgspec.json.encode(theirs)))
        await import_run(harness.client, found, as_found=True)
        asked: list[str] = []

        def checker(task: buoy.TaskView) -> bool:
            asked.append(task.run_id)
            return True

        seen = await buoy.scan(harness.client, stale_after=0, task_checker=checker)
        assert [(each.run_id, each.action) for each in seen.found] == [("theirs", "skip")]
        assert asked == ["ours"]

    play(tmp_path, test, "file")
