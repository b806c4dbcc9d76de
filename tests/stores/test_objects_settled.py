"""Runs that ended and then told their parents: one entry in `index/` says so, holds their state, and lists them."""

from __future__ import annotations

import asyncio
from collections import Counter

from buoy.core.ids import BranchId, RunId
from buoy.core.log import events as e
from buoy.ports.maintenance import Tombstone
from buoy.ports.records import Ended, FencedOut, Held, Released, RunQuery
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.index.counts import COUNTED_UNFILTERED
from buoy.stores.objects.runs import LATELY_S, LISTED_AFTER_S
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.archive import stone_of
from buoy.testing.contracts.harness import claim, claimed, register, started

from .object_world import MEDIC, R1, RUN, World, end_run

BACK = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=0)


async def _ended() -> tuple[World, ObjectStore]:
    """A run that ended; its holder still owes its parent the news."""
    world = World(None)
    store = await world.fresh()
    await register(store, "r1")
    await register(store, "medic")
    await world.author.create(store)
    assert await claim(store, R1) == [RUN]
    await world.author.append(store, claimed("r1"), started(1), task=Held(R1))
    await world.author.append(store, e.WorkflowCompleted())
    return world, store


def _index(world: World) -> list[str]:
    return [key for key in world.data.keys if key.startswith(layout.INDEX)]


async def _listed(store: ObjectStore, *statuses: str) -> list[str]:
    return [record.document.run_id for record in (await store.find_runs(RunQuery(statuses=statuses))).runs]


def test_a_run_that_settled_has_no_holder_and_is_listed_by_one_read() -> None:
    async def test() -> None:
        world, store = await _ended()
        assert await _listed(store) == [RUN]
        assert await store.release(RUN, R1, Ended())
        assert world.index_keys() == []
        counts = Counter[str]()

        async def count(operation: str, key: str, phase: str) -> None:
            counts[operation] += phase == "before"

        other = ObjectStore(MemoryBucket(world.data, count), world.clock)
        assert await _listed(other, "completed") == [RUN]
        assert counts == {"list": 3, "get": 1}
        assert await _listed(other) == [RUN]
        assert await _listed(other, "running") == []
        assert await other.counts() == {"completed": 1}
        record = await other.run(RUN)
        assert record is not None and record.holder is None and not record.has_task
        assert [each async for each in other.integrity.index_troubles(deep=True) if each is not None] == []

    asyncio.run(test())


def test_a_run_whose_living_holder_takes_long_over_its_duties_is_listed_as_ended() -> None:
    async def test() -> None:
        world, store = await _ended()
        await store.wait_for_change(0.0)
        assert _index(world) == [], "most runs settle at once: one entry says all"
        world.clock.advance(LISTED_AFTER_S)
        await store.wait_for_change(0.0)
        other = await world.fresh()
        assert await _listed(other, "completed") == await _listed(other) == [RUN]
        assert await other.counts() == await other.counts(RunQuery(statuses=("completed",))) == {"completed": 1}
        assert [each async for each in other.integrity.index_troubles(deep=True) if each is not None] == []
        record = await other.run(RUN)
        assert record is not None and record.holder == R1
        assert await store.release(RUN, R1, Ended())
        world.clock.advance(LISTED_AFTER_S)
        await store.wait_for_change(0.0)
        assert await _listed(other, "completed") == await _listed(other) == [RUN]
        assert await other.counts() == {"completed": 1}
        assert len(_index(world)) == 2 and world.index_keys() == []

    asyncio.run(test())


def test_a_run_that_is_brought_back_before_it_settled_is_not_listed_as_ended() -> None:
    async def test() -> None:
        world, store = await _ended()
        await world.author.append(store, BACK, task=Held(R1))
        world.clock.advance(LISTED_AFTER_S)
        await store.wait_for_change(0.0)
        assert _index(world) == []
        assert await _listed(store, "completed") == []

    asyncio.run(test())


def test_a_run_whose_duties_take_long_is_listed_as_ended() -> None:
    async def test() -> None:
        world, store = await _ended()
        await store.declare_dead(R1, "proven dead", cause="taken_over", evidence={})
        assert await _listed(store, "completed") == [RUN]
        assert await _listed(store) == [RUN]
        assert await store.counts() == {"completed": 1}
        assert await claim(store, MEDIC) == [RUN]
        assert await store.release(RUN, MEDIC, Ended())
        assert await _listed(store) == await _listed(store, "completed") == [RUN]
        assert await store.counts() == {"completed": 1}
        assert world.index_keys() == []

    asyncio.run(test())


def test_a_holder_that_settles_late_takes_no_entry_from_a_run_that_was_brought_back() -> None:
    async def test() -> None:
        world, store = await _ended()
        late = await world.fresh()
        settle = late._claims._runs.settle

        async def held_up(view: object) -> None:
            await store.declare_dead(R1, "proven dead", cause="taken_over", evidence={})
            assert await claim(store, MEDIC) == [RUN]
            await world.author.append(store, claimed("medic"), BACK, task=Held(MEDIC))
            world.clock.advance(LATELY_S + 1.0)
            await settle(view)  # type: ignore[arg-type]

        late._claims._runs.settle = held_up  # type: ignore[method-assign]
        assert await late.release(RUN, R1, Ended())
        assert await _listed(store, "running") == [RUN]
        assert await _listed(store) == [RUN]
        assert await _listed(store, "completed") == []
        record = await (await world.fresh()).run(RUN)
        assert record is not None and record.holder == MEDIC
        assert await store.orphans(10) == []

    asyncio.run(test())


def test_a_run_that_is_brought_back_after_it_settled_is_active_again_and_can_end_again() -> None:
    async def test() -> None:
        world, store = await _ended()
        assert await store.release(RUN, R1, Ended())
        await world.author.append(store, BACK, task=Released(due_at=0.0, now=1.0))
        assert _index(world) == []
        assert await claim(store, MEDIC) == [RUN]
        await end_run(world, store, RUN)
        assert await _listed(store, "failed") == [RUN]
        assert await _listed(store, "completed") == []
        record = await store.run(RUN)
        assert record is not None
        head = record.document.head_seq
        tombstone = Tombstone(
            run_id=RUN, workflow="flow", status="failed", created_at=record.document.created_at, ended_at=0.0,
            purged_at=0.0, head_seq=head,
        )  # fmt: skip
        assert await store.archive.purge(tombstone)
        assert _index(world) == []

    asyncio.run(test())


class _Metered(MemoryBucket):
    """Each request is billed, as on S3: a count reads few documents, and the other names."""

    def pulse(self) -> int | None:
        return None


def test_who_brings_a_run_back_and_meets_its_purge_leaves_no_entry_of_it() -> None:
    async def test() -> None:
        world, store = await _ended()
        assert await store.release(RUN, R1, Ended())
        world.author.log = await store.events(RUN)
        back = world.author.draft(claimed("medic"), BACK, task=Held(MEDIC))
        stone, purged = await stone_of(store), False

        async def purges(operation: str, key: str, phase: str) -> None:
            nonlocal purged
            if operation == "put" and phase == "before" and not purged:
                purged = True
                assert await store.archive.purge(stone)

        slow = ObjectStore(MemoryBucket(world.data, purges), world.clock)
        assert isinstance((await slow.commit([back]))[0], FencedOut)
        assert purged
        assert _index(world) == []
        assert await store.counts() == {}

    asyncio.run(test())


def test_a_run_that_ended_counts_once_though_an_entry_of_its_activity_was_left() -> None:
    async def test() -> None:
        world, store = await _ended()
        await world.author.append(store, BACK, task=Held(R1))
        await end_run(world, store, RUN)
        record = await store.run(RUN)
        assert record is not None
        # The delete of the entry from before it was brought back failed.
        await store.bucket.put(layout.active_key(RUN, record.document.created_at, 1), b"{}")
        for number in range(COUNTED_UNFILTERED):
            name = RunId(f"later-{number}")
            world.clock.advance(1.0)
            await world.new_author(name).create(store)
            await end_run(world, store, name)
        metered = ObjectStore(_Metered(world.data), world.clock)
        assert await metered.counts() == {"failed": COUNTED_UNFILTERED + 1}

    asyncio.run(test())


def test_a_store_of_the_earlier_format_lists_each_run_once() -> None:
    """There every run had an entry in `index/`, under its place alone; children began with the parent's id."""

    async def test() -> None:
        world, store = await _ended()
        names = [RUN, RunId(f"{RUN}.a"), RunId(f"{RUN}.b")]
        for name in names[1:]:
            await world.new_author(name).create(store)
        for name in names:
            record = await store.run(name)
            assert record is not None
            key = layout.index_keys(name, record.document.created_at, 0)[-1]
            await store.bucket.put(key, b"{}")
        for limit in (1, 2, 3):
            found, cursor = [], None
            while True:
                page = await store.find_runs(RunQuery(), cursor, limit)
                found += [each.document.run_id for each in page.runs]
                cursor = page.cursor
                if cursor is None:
                    break
            assert sorted(found) == names
        assert await store.counts() == {"completed": 1, "pending": 2}
        assert await store.release(RUN, R1, Ended())
        assert sorted(await _listed(store)) == names
        assert await store.counts() == {"completed": 1, "pending": 2}

    asyncio.run(test())
