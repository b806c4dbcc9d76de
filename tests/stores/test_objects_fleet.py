"""Runners in objects: one listing shows new beats, a retirement survives a crash at any write, and dead is final."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import msgspec
import pytest

from buoy.core.ids import RunnerId
from buoy.errors import WrongState
from buoy.ports.records import Beat
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.index.entries import REAP_AFTER_S
from buoy.stores.objects.runners import keys as runner_keys
from buoy.stores.objects.runners.fleet import QUIET_AFTER_S
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import register

from .object_world import Crash, Fault

LOOK_S = 12.0
R1 = RunnerId("r1")


class Fleet:
    """Processes on one bucket; the requests of the observer are counted."""

    def __init__(self, *others: str) -> None:
        self.data, self.clock = MemoryData(), ManualClock()
        self.counts = Counter[str]()
        self.observer = ObjectStore(MemoryBucket(self.data, self._count), self.clock)
        self.runner = ObjectStore(MemoryBucket(self.data), self.clock)
        self.others = others
        self._beats = Counter[str]()

    async def _count(self, operation: str, key: str, phase: str) -> None:
        self.counts[operation] += phase == "before"

    async def begin(self) -> None:
        for name in self.others:
            await register(self.runner, name)
        await self.observer.runners(glance=True)
        self.counts.clear()

    async def beat(self, name: str) -> None:
        self._beats[name] += 1
        assert await self.runner.beat(RunnerId(name), Beat(number=self._beats[name]))

    async def minutes(self, number: int, *beating: str) -> None:
        """Beats every half minute, and looks every twelve seconds."""
        for second in range(1, 60 * number + 1):
            self.clock.advance(1.0)
            for name in beating if second % 30 == 0 else ():
                await self.beat(name)
            if second % LOOK_S == 0:
                await self.observer.runners(glance=True)


def test_glances_at_a_fleet_that_beats_are_one_listing_each() -> None:
    async def test() -> None:
        names = [f"r{number}" for number in range(20)]
        fleet = Fleet(*names)
        await fleet.begin()
        await fleet.minutes(10, *names)
        assert fleet.counts == {"list": 50}
        assert {one.beaten for one in await fleet.observer.runners(glance=True)} == {True}

    asyncio.run(test())


def test_a_runner_that_misses_a_beat_is_read_once_and_shown_as_it_is() -> None:
    async def test() -> None:
        fleet = Fleet("silent", "busy")
        await fleet.begin()
        await fleet.beat("silent")
        await fleet.minutes(3, "busy")
        assert fleet.counts["get"] == 1
        (silent,) = [one for one in await fleet.observer.runners(glance=True) if one.info.id == "silent"]
        assert not silent.beaten and silent.beat.number == 1
        assert 180.0 - LOOK_S <= silent.quiet_s <= 180.0

    asyncio.run(test())


def test_the_note_of_another_observer_is_not_taken_for_a_beat() -> None:
    async def test() -> None:
        fleet = Fleet("r1")
        await fleet.begin()
        await fleet.minutes(2)
        assert await fleet.runner.suspect(R1, 0) is not None
        await fleet.minutes(1)
        (record,) = await fleet.observer.runners(glance=True)
        assert record.suspected_beat == 0 and not record.beaten and record.quiet_s >= 180.0 - LOOK_S
        await fleet.beat("r1")
        await fleet.minutes(1)
        (record,) = await fleet.observer.runners(glance=True)
        assert record.quiet_s <= 60.0 and record.beat.number == 1

    asyncio.run(test())


def test_without_a_glance_every_record_is_the_newest() -> None:
    async def test() -> None:
        fleet = Fleet("r1")
        await fleet.begin()
        await fleet.beat("r1")
        (record,) = await fleet.observer.runners()
        assert record.beat.number == 1 and not record.beaten and record.quiet_s == 0.0

    asyncio.run(test())


@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_retirement_that_is_killed_at_any_write_is_ended_by_the_next_ones(phase: str) -> None:
    async def play(at: int) -> bool:
        fault, clock = Fault(at, phase, dies=True), ManualClock()
        data = MemoryData()
        store = ObjectStore(MemoryBucket(data), clock)
        await register(store, "r1")
        killed = ObjectStore(MemoryBucket(data, fault), clock)
        fault.armed = True
        with suppress(Crash):
            await killed.declare_dead(R1, "killed", cause="taken_over", evidence={})
        clock.advance(1.0)
        living = [one.info.id for one in await store.runners()]
        if living:
            assert await store.declare_dead(R1, "killed", cause="taken_over", evidence={}) == 0
        assert not await store.beat(R1, Beat(number=9)), "dead is final"
        with pytest.raises(WrongState):
            await register(ObjectStore(MemoryBucket(data), clock), "r1")
        for _ in range(3):
            clock.advance(REAP_AFTER_S)
            await store.retire(100, 100)
        assert [key for key in data.keys if key.startswith(layout.LIVING)] == []
        assert len([key for key in data.keys if key.startswith(layout.GONE)]) == 1, "also of two that buried it"
        assert [one.info.id for one in await store.runners(gone=9)] == ["r1"]
        assert await store.retire(0, 100) == 1
        assert [key for key in data.keys if "r1" in key] == []
        return fault.struck

    at = 1
    while asyncio.run(play(at)):
        at += 1
    assert at > 4


def test_a_runner_that_an_earlier_release_registered_beats_and_is_retired() -> None:
    """Its entry in `living/` is empty, and its record stands in `runners/`."""

    async def test() -> None:
        fleet = Fleet("r1")
        await fleet.begin()
        body, _ = fleet.data.objects[runner_keys.living_key(R1)]
        fleet.data.put(runner_keys.living_key(R1), b"{}")
        fleet.data.put(runner_keys.runner_key(R1), body)
        later = ObjectStore(MemoryBucket(fleet.data), fleet.clock)
        assert await later.beat(R1, Beat(number=7))
        (record,) = await later.runners(glance=True)
        assert record.beat.number == 7 and not record.beaten
        fleet.clock.advance(2 * QUIET_AFTER_S)
        assert await later.beat(R1, Beat(number=8))
        (record,) = await later.runners(glance=True)
        assert record.beat.number == 8 and record.quiet_s == 0.0
        assert await later.declare_dead(R1, "silent", cause="taken_over", evidence={}, beat_number=7) is None
        assert await later.declare_dead(R1, "silent", cause="taken_over", evidence={}, beat_number=8) == 0
        assert [one.gone_why for one in await later.runners(gone=1)] == ["silent"]
        assert runner_keys.living_key(R1) not in fleet.data.objects
        fleet.data.put(runner_keys.living_key(RunnerId("half")), b"{}")
        assert await later.unregistered() == ["half"]

    asyncio.run(test())


def test_a_record_that_cannot_be_decoded_hides_no_other_runner() -> None:
    async def test() -> None:
        fleet = Fleet("r1", "r2")
        await fleet.begin()
        fleet.data.put(runner_keys.living_key(R1), b"\x00garbage")
        found = {one.info.id: one for one in await fleet.observer.runners(glance=True)}
        assert set(found) == {"r1", "r2"}
        fleet.clock.advance(QUIET_AFTER_S)
        found = {one.info.id: one for one in await fleet.observer.runners(glance=True)}
        assert found[R1].unreadable and found[RunnerId("r2")].unreadable is None
        assert await fleet.observer.declare_dead(R1, "process", cause="taken_over", evidence={}) == 0
        gone = msgspec.json.decode(fleet.data.objects[runner_keys.runner_key(R1)][0])
        assert gone["record"]["gone_why"] == "process"

    asyncio.run(test())
