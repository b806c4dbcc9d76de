"""Schedules on real stores: every time fires once, however many workers there are and whenever they die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.engine.client.client import Client
from buoy.errors import BadInput, Unavailable, WrongState
from buoy.host.ids import SystemIds
from buoy.operations.control.schedules import (
    Times,
    add_schedule,
    all_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
)
from buoy.operations.maintenance.purge import Purge, purge
from buoy.operations.workers.scheduler import Scheduler, next_fire
from buoy.ports.store import Store
from buoy.recovery.sweep.scope import Scope
from buoy.stores import open_store
from buoy.testing.clock import ManualClock
from tests.patience import PATIENCE_S

KINDS = ("sqlite", "folder")
HOURLY = Times(cron="0 * * * *")
NOTHING = msgspec.Raw(b'{"n": 1}')


@buoy.workflow
async def report(n: int) -> int:
    return n


class Crash(BaseException):
    """The process is killed here."""


class ScheduleHarness:
    def __init__(self, url: str, clock: ManualClock, client: Client) -> None:
        self.url, self.clock, self.client = url, clock, client
        self.opened: list[Store] = []

    async def scheduler(self, scope: Scope | None = None) -> Scheduler:
        """One of another worker, on a store of its own."""
        store = await open_store(self.url, self.clock)
        self.opened.append(store)
        return Scheduler(store, clock=self.clock, ids=SystemIds(), scope=scope)

    async def runs(self) -> list[str]:
        return sorted(record.document.run_id for record in (await self.client.runs(limit=1000)).runs)


def played(test: Callable[[ScheduleHarness], Awaitable[None]], folder: Path, kind: str) -> None:
    async def play() -> None:
        url = f"sqlite:///{folder / 'runs'}.db" if kind == "sqlite" else f"file://{folder / 'runs'}"
        async with buoy.connect(url, actor="ann") as client:
            clock = ManualClock(1_767_225_600.0)
            client.clock = clock
            await client.store.close()
            client.store = await open_store(url, clock)
            harness = ScheduleHarness(url, clock, client)
            try:
                await test(harness)
            finally:
                for store in harness.opened:
                    await store.close()

    asyncio.run(play())


@pytest.mark.parametrize("kind", KINDS)
def test_many_workers_fire_each_time_once(tmp_path: Path, kind: str) -> None:
    async def play(harness: ScheduleHarness) -> None:
        await add_schedule(harness.client, "hourly", report, NOTHING, HOURLY)
        schedulers = [await harness.scheduler() for _ in range(6)]
        for _ in range(4):
            harness.clock.advance(1800.0)
            started = await asyncio.gather(*(each.look() for each in schedulers))
            assert sum(each.started for each in started) == (1 if harness.clock.now() % 3600 == 0 else 0)
            assert sum(each.errors for each in schedulers) == 0
        assert await harness.runs() == ["hourly-20260101T010000Z", "hourly-20260101T020000Z"]
        (found,) = await all_schedules(harness.client)
        assert (found.fired, found.last_run) == (2, "hourly-20260101T020000Z")
        record = await harness.client.record("hourly-20260101T010000Z")
        assert (record.document.workflow, record.document.version) == ("report", report.version)

    played(play, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_of_another_env_or_stack_leaves_a_schedule_alone(tmp_path: Path, kind: str) -> None:
    async def play(harness: ScheduleHarness) -> None:
        harness.client.env, harness.client.stack = "lab", "north"
        await add_schedule(harness.client, "hourly", report, NOTHING, HOURLY)
        harness.clock.advance(3600.0)
        for scope in (Scope(), Scope("north"), Scope("south", "lab"), Scope("north", "live")):
            assert (await (await harness.scheduler(scope)).look()).started == 0
        assert (await (await harness.scheduler(Scope(None, "lab"))).look()).started == 1

    played(play, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_between_the_run_and_its_note_fires_nothing_twice(tmp_path: Path, kind: str) -> None:
    async def play(harness: ScheduleHarness) -> None:
        await add_schedule(harness.client, "hourly", report, NOTHING, Times(cron="0 * * * *", catch_up="all"))
        dying, other = await harness.scheduler(), await harness.scheduler()
        harness.clock.advance(3 * 3600.0 + 600.0)

        async def crash(*_: object) -> bool:
            raise Crash

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
            patch.setattr(type(harness.opened[0].schedules), "save_schedule", crash)
            await dying.look()
        assert len(await harness.runs()) == 3
        done = await other.look()
        assert (done.started, len(await harness.runs())) == (0, 3)
        assert (await all_schedules(harness.client))[0].fired == 3
        assert (await other.look()).started == 0

    played(play, tmp_path, kind)


def test_an_outage_of_the_store_loses_no_time(tmp_path: Path) -> None:
    async def play(harness: ScheduleHarness) -> None:
        await add_schedule(harness.client, "hourly", report, NOTHING, HOURLY)
        one = await harness.scheduler()
        await one.look()
        harness.clock.advance(3600.0)
        await harness.opened[0].close()
        with pytest.raises(Unavailable):
            await one.look()
        other = await harness.scheduler()
        assert (await other.look()).started == 1

    played(play, tmp_path, "sqlite")


def test_a_paused_schedule_rests_and_misses_nothing(tmp_path: Path) -> None:
    async def play(harness: ScheduleHarness) -> None:
        client, one = harness.client, await harness.scheduler()
        await add_schedule(client, "hourly", report, NOTHING, Times(every_s=3600, catch_up="all"))
        await one.look()
        await pause_schedule(client, "hourly")
        with pytest.raises(WrongState, match="paused already"):
            await pause_schedule(client, "hourly")
        harness.clock.advance(5 * 3600.0)
        assert (await one.look()).started == 0
        assert next_fire((await all_schedules(client))[0], harness.clock.now()) is None
        await resume_schedule(client, "hourly")
        with pytest.raises(WrongState, match="not paused"):
            await resume_schedule(client, "hourly")
        assert (await one.look()).started == 0
        harness.clock.advance(3600.0)
        assert (await one.look()).started == 1
        assert await harness.runs() == ["hourly-20260101T060000Z"]

    played(play, tmp_path, "sqlite")


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_schedule_fires_no_more_and_its_name_is_free(tmp_path: Path, kind: str) -> None:
    async def play(harness: ScheduleHarness) -> None:
        client, one = harness.client, await harness.scheduler()
        first = await add_schedule(client, "s", report, NOTHING, HOURLY)
        assert await add_schedule(client, "s", report, NOTHING, HOURLY) == first
        with pytest.raises(WrongState, match="another cron"):
            await add_schedule(client, "s", report, NOTHING, Times(cron="5 * * * *"))
        await one.look()
        await remove_schedule(client, "s")
        harness.clock.advance(3600.0)
        assert (await one.look()).started == 0
        with pytest.raises(BadInput, match="no schedule 's'"):
            await remove_schedule(client, "s")
        again = await add_schedule(client, "s", report, NOTHING, Times(every_s=60))
        assert (again.number, again.fired) == (3, 0)
        harness.clock.advance(60.0)
        assert (await one.look()).started == 1

    played(play, tmp_path, kind)


def test_what_cannot_work_is_refused_when_it_is_added(tmp_path: Path) -> None:
    async def play(harness: ScheduleHarness) -> None:
        client = harness.client
        for name, stored, times, why in (
            ("s", NOTHING, Times(cron="61 * * * *"), "minute"),
            ("s", NOTHING, Times(), "either"),
            ("s", NOTHING, Times(every_s=0.5), "parts of a second"),
            ("s", NOTHING, Times(cron="* * * * *", zone="Mars/Olympus"), "time zone"),
            ("s", NOTHING, Times(cron="* * * * *", zone="../etc/passwd"), "time zone"),
            ("s/x", NOTHING, HOURLY, "schedule name"),
            ("s", msgspec.Raw(b'{"n": "x"}'), HOURLY, "invalid arguments for workflow report"),
        ):
            with pytest.raises(BadInput, match=why):
                await add_schedule(client, name, report, stored, times)
        assert await all_schedules(client) == []

    played(play, tmp_path, "sqlite")


def test_a_schedule_that_cannot_be_read_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def play(harness: ScheduleHarness) -> None:
        good = await add_schedule(harness.client, "good", report, NOTHING, HOURLY)
        bad = msgspec.structs.replace(good, name="bad", zone="No/Where", number=1)
        assert await harness.client.store.schedules.save_schedule(bad)
        one = await harness.scheduler()
        harness.clock.advance(3600.0)
        assert (await one.look()).started == 1
        assert one.errors and "No/Where" in (one.last_error or "")

    played(play, tmp_path, "sqlite")


def test_a_run_that_was_purged_is_not_started_again(tmp_path: Path) -> None:
    async def play(harness: ScheduleHarness) -> None:
        made = await add_schedule(harness.client, "hourly", report, NOTHING, HOURLY)
        one = await harness.scheduler()
        harness.clock.advance(3600.0)
        await one.look()
        await harness.client.cancel("hourly-20260101T010000Z")
        await purge(harness.client, Purge(older_than_s=-1.0))
        # As if the note of it had been lost.
        forgetful = msgspec.structs.replace(made, number=3)
        assert await harness.client.store.schedules.save_schedule(forgetful)
        assert (await (await harness.scheduler()).look()).started == 0
        assert await harness.runs() == []

    played(play, tmp_path, "sqlite")


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_fires_and_drives_what_is_due(tmp_path: Path, kind: str) -> None:
    async def play() -> None:
        url = f"sqlite:///{tmp_path / 'runs'}.db" if kind == "sqlite" else f"file://{tmp_path / 'runs'}"
        async with buoy.connect(url) as client:
            await add_schedule(client, "quick", report, NOTHING, Times(every_s=1))
            async with buoy.open(url, workflows=[report]), buoy.open(url, workflows=[report]):
                async with asyncio.timeout(PATIENCE_S):
                    while sum(each.document.ended for each in (await client.runs()).runs) < 2:
                        await client.store.wait_for_change(0.1)
            names = [each.document.run_id for each in (await client.runs()).runs]
            assert len(names) == len(set(names))

    asyncio.run(play())


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_schedule_is_seen_by_workers_on_this_machine_within_a_second(tmp_path: Path, kind: str) -> None:
    async def play(harness: ScheduleHarness) -> None:
        scheduler = await harness.scheduler()
        await scheduler.look()
        await add_schedule(harness.client, "quick", report, NOTHING, Times(every_s=1))
        harness.clock.advance(1.0)
        assert (await scheduler.look()).started == 1

    played(play, tmp_path, kind)
