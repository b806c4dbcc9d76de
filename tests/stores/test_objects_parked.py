"""Parked runs in objects: each has an entry, so that listings alone tell which active runs need a look."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.ports.records import Ended, FencedOut, Released, RunQuery
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.reclaim import LOOKS_MAX
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import ANY, Author, committed, message, register

RUNS = 40
PARK = Released(due_at=None, now=0.0)


class World:
    """A store with parked runs, some of them paused, and the requests to it."""

    def __init__(self) -> None:
        self.data, self.clock, self.counts = MemoryData(), ManualClock(), Counter[str]()
        self.store = ObjectStore(MemoryBucket(self.data, self._count), self.clock)
        self.authors: list[Author] = []

    async def _count(self, operation: str, key: str, phase: str) -> None:
        self.counts[operation] += phase == "before"

    async def plant(self, number: int = RUNS, paused: int = 3) -> None:
        nonces = count(1)
        for each in range(number):
            author = await Author(RunId(f"run-{each}"), self.clock, nonces, {}).create(self.store, PARK)
            pause = e.Paused(reason="version") if each < paused else e.SignalWaited(leaf=LeafId("go#1"), name="go")
            await author.append(self.store, pause, task=PARK)
            self.authors.append(author)
        self.counts.clear()

    def parked(self) -> list[str]:
        return [key for key in self.data.keys if key.startswith(layout.PARKED)]


def test_every_parked_run_has_one_entry_and_loses_it_when_it_is_claimed() -> None:
    async def test() -> None:
        world = World()
        await world.plant()
        assert len(world.parked()) == RUNS
        assert sum(key.startswith(layout.PARKED_PAUSED) for key in world.parked()) == 3
        await world.store.send(message("run-7", "d"))
        runner = await register(world.store, "r1")
        assert [task.run_id for task in await world.store.claim_tasks(runner, ANY, 10)] == ["run-7"]
        assert len(world.parked()) == RUNS - 1
        assert await world.store.release(RunId("run-7"), runner, Released(due_at=None, now=0.0, seen=1))
        assert len(world.parked()) == RUNS

    asyncio.run(test())


def test_a_look_for_orphans_lists_four_indexes_and_reads_a_few_runs() -> None:
    async def test() -> None:
        world = World()
        await world.plant()
        assert await world.store.orphans(100) == []
        assert world.counts["get"] == LOOKS_MAX
        # Of each run that is read: its log and its inbox.
        assert world.counts["list"] == 4 + 2 * LOOKS_MAX
        assert not world.counts["create"] and not world.counts["delete"]

    asyncio.run(test())


def test_parked_runs_of_an_earlier_release_get_their_entries() -> None:
    async def test() -> None:
        world = World()
        await world.plant()
        before = world.parked()
        for key in before:
            world.data.remove(key)
        assert await world.store.orphans(100) == []
        assert world.parked() == before

    asyncio.run(test())


def test_a_parked_run_whose_message_nothing_announces_is_found() -> None:
    async def test() -> None:
        world = World()
        await world.plant(number=3 * LOOKS_MAX)
        await world.store.send(message("run-5", "d"))
        for key in [key for key in world.data.keys if key.startswith(layout.WAKE)]:
            world.data.remove(key)
        looks = [await world.store.orphans(100) for _ in range(3)]
        assert [orphan.run_id for look in looks for orphan in look] == ["run-5"]

    asyncio.run(test())


def test_a_hinted_list_of_paused_runs_reads_only_those() -> None:
    async def test() -> None:
        world = World()
        await world.plant()
        page = await world.store.find_runs(RunQuery(("paused",), hinted=True))
        assert sorted(record.document.run_id for record in page.runs) == ["run-0", "run-1", "run-2"]
        assert world.counts["get"] == 3
        exact = await world.store.find_runs(RunQuery(("paused",)))
        assert {each.document.run_id for each in exact.runs} == {each.document.run_id for each in page.runs}

    asyncio.run(test())


def test_a_commit_that_pauses_a_parked_run_moves_its_entry() -> None:
    async def test() -> None:
        world = World()
        await world.plant(number=1, paused=0)
        (before,) = world.parked()
        await world.authors[0].append(world.store, e.Paused(reason="user"))
        (after,) = world.parked()
        assert after.startswith(layout.PARKED_PAUSED) and before.startswith(layout.PARKED_WAITS)

    asyncio.run(test())


def test_a_pause_that_another_writer_fenced_leaves_no_entry() -> None:
    async def test() -> None:
        world = World()
        await world.plant(number=1, paused=0)
        (author,) = world.authors
        late = ObjectStore(MemoryBucket(world.data), world.clock)
        await late.run(author.run_id)
        pause = author.draft(e.Paused(reason="user"), task=PARK)
        await author.append(world.store, e.SignalWaited(leaf=LeafId("more#1"), name="more"))
        assert isinstance(await committed(late, pause), FencedOut)
        (left,) = world.parked()
        assert left.startswith(layout.PARKED_WAITS)

    asyncio.run(test())


def test_a_look_for_orphans_removes_entries_that_a_crash_left_behind() -> None:
    async def test() -> None:
        world = World()
        await world.plant(number=3, paused=0)
        ended, moved, _ = world.parked()
        await world.authors[0].append(world.store, e.WorkflowCompleted(), task=Ended())
        await world.authors[1].append(world.store, e.Paused(reason="user"))
        there = MemoryBucket(world.data)
        for key in (ended, moved):
            await there.create(key, b"{}")
        assert len(world.parked()) == 4
        assert await world.store.orphans(10) == []
        assert len(world.parked()) == 2 and not {ended, moved} & set(world.parked())

    asyncio.run(test())


def test_a_list_costs_one_read_for_each_run_that_no_runner_holds() -> None:
    async def test() -> None:
        world = World()
        await world.plant()
        page = await world.store.find_runs(RunQuery(), limit=10)
        assert len(page.runs) == 10
        assert world.counts == {"get": 11, "list": 4}, "one more run tells that there is another page"

    asyncio.run(test())


def test_a_timer_whose_entry_is_lost_is_found_at_the_next_look_among_many() -> None:
    """Listings show it, however many runs are active: it need not wait for its turn among them."""

    async def test() -> None:
        world = World()
        await world.plant(number=300)
        now = world.clock.now()
        author = await Author(RunId("lost"), world.clock, count(9_000), {}).create(world.store, PARK)
        timer = e.TimerStarted(leaf=LeafId("sleep#1"), due_at=now + 60.0)
        await author.append(world.store, timer, task=Released(due_at=now + 60.0, now=now))
        (entry,) = [key for key in world.data.keys if key.startswith(layout.TASKS)]
        await world.store.bucket.delete(entry)
        world.clock.advance(61.0)
        (found,) = await world.store.orphans(100)
        assert found.run_id == "lost"
        assert await world.store.requeue_orphan(found)
        runner = await register(world.store, "r1")
        assert [task.run_id for task in await world.store.claim_tasks(runner, ANY, 10)] == ["lost"]

    asyncio.run(test())
