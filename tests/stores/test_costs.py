"""What things cost on an object store, counted in calls and names, never in time."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.engine.authoring.definitions import Registry
from buoy.engine.process.runner_options import RunnerOptions
from buoy.host.clock import SystemClock
from buoy.ports.records import Held
from buoy.stores.objects import layout
from buoy.stores.objects.buckets import folder_listing
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.folder_store import FolderStore
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import Author, message, register, started
from buoy.testing.skipping import Outside, SkippingClock, skipping_time
from buoy.wiring.local_worker import host_worker

# Looked at again and again while a worker waits, however many children there are.
_POLLED = (layout.WAKE, layout.TASKS, layout.HELD, layout.LIVING, layout.RUNNERS)


@buoy.step
async def same(number: int) -> int:
    return number


@buoy.workflow
async def child(number: int) -> int:
    return await same(number)


@buoy.workflow
async def family(number: int, at_once: bool) -> int:
    if at_once:
        return sum(await asyncio.gather(*(child(each) for each in range(number))))
    return sum([await child(each) for each in range(number)])


class Counting(MemoryBucket):
    """Counts the calls, and the names that listings give; not those of polls."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    async def _call(self, operation: str, key: str, phase: str) -> None:
        if phase == "before" and not (operation == "list" and key.startswith(_POLLED)):
            self.counts["calls"] += 1
        await super()._call(operation, key, phase)

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        found = await super().list(prefix, after, limit)
        self.counts["names"] += 0 if prefix.startswith(_POLLED) else len(found)
        return found


async def _cost(children: int, *, at_once: bool) -> Counter[str]:
    bucket = Counting()
    store = await ObjectStore.on(bucket, clock=SystemClock())
    registry = Registry()
    registry.add(child)
    registry.add(family)
    worker = host_worker(store, registry, role="worker", queues=("default",), options=RunnerOptions())
    await worker.runner.start(takes_work=True)
    run = await worker.client().start_as("parent", family, children, at_once)
    assert await run.result() == sum(range(children))
    found = bucket.counts.copy()
    await worker.runner.stop()
    return found


@pytest.mark.parametrize("at_once", [False, True])
def test_a_child_costs_the_same_among_few_and_among_many(at_once: bool) -> None:
    few, many = (asyncio.run(_cost(number, at_once=at_once)) for number in (80, 200))
    assert (many["calls"] - few["calls"]) / 120 <= 40, (few, many)
    # A document may lag behind its log by 128 events, whose names are then listed to read the run.
    assert (many["names"] - few["names"]) / 120 <= 128, (few, many)


@pytest.mark.parametrize("limit", [1, 3, 70])
def test_a_page_of_events_reads_no_more_commits_than_it_needs(limit: int) -> None:
    async def cost() -> Counter[str]:
        bucket, clock = Counting(), ManualClock()
        store = await ObjectStore.on(bucket, clock=clock)
        author = await Author(RunId("one"), clock, count(1), {}).create(store)
        for number in range(150):
            await author.append(store, started(number))
        bucket.counts.clear()
        assert await store.events(RunId("one"), after=20, limit=limit) == author.log[20 : 20 + limit]
        return bucket.counts

    found = asyncio.run(cost())
    assert found == {"calls": limit + 1, "names": limit + 1}, "a listing, and each commit"


def test_an_unread_message_does_not_make_the_next_one_dearer() -> None:
    async def cost(number: int) -> Counter[str]:
        bucket = Counting()
        store = await ObjectStore.on(bucket, clock=ManualClock())
        await Author(RunId("one"), ManualClock(), count(1), {}).create(store)
        bucket.counts.clear()
        for each in range(number):
            await store.send(message("one", f"d{each}"))
        return bucket.counts

    few, many = asyncio.run(cost(10)), asyncio.run(cost(100))
    assert many["calls"] == 10 * few["calls"]
    assert many["names"] <= 2 * 100, "the last one that was known, and those that came since"


def test_a_commit_that_saw_a_message_removes_its_wake_up() -> None:
    """While it stands, each look of each worker reads the run."""

    async def left() -> list[str]:
        bucket, clock = Counting(), ManualClock()
        store = await ObjectStore.on(bucket, clock=clock)
        owner = await register(store, "owner")
        author = await Author(RunId("one"), clock, count(1), {}).create(store, Held(owner))
        for number in range(3):
            await store.send(message("one", f"d{number}"))
        await author.append(store, started(1), seen=2)
        return await bucket.list(layout.WAKE)

    assert asyncio.run(left()) == [layout.wake_key(RunId("one"), 3)], "only that of the unseen message"


def test_a_look_for_orphans_reads_only_the_runners_that_hold_runs() -> None:
    async def cost(idle: int) -> Counter[str]:
        bucket, clock = Counting(), ManualClock()
        store = await ObjectStore.on(bucket, clock=clock)
        owner = await register(store, "owner")
        for number in range(idle):
            await register(store, f"idle-{number}")
        await Author(RunId("one"), clock, count(1), {}).create(store, Held(owner))
        bucket.counts.clear()
        assert await store.orphans(10) == []
        return bucket.counts

    assert asyncio.run(cost(0)) == asyncio.run(cost(30))


def test_runs_that_have_not_ended_are_read_once_to_be_counted() -> None:
    async def cost(runs: int) -> int:
        bucket, clock = Counting(), ManualClock()
        store = await ObjectStore.on(bucket, clock=clock)
        for number in range(runs):
            await Author(RunId(f"run-{number}"), clock, count(1), {}).create(store)
        bucket.counts.clear()
        assert sum((await store.counts()).values()) == runs
        return bucket.counts["calls"]

    few, many = asyncio.run(cost(10)), asyncio.run(cost(30))
    assert (many - few) / 20 == 3, "no document yet, a listing of its log, and the commit"


class Yielding(Counting):
    """Lets others come in between, as every bucket on a disk or a network does."""

    async def _call(self, operation: str, key: str, phase: str) -> None:
        await super()._call(operation, key, phase)
        await asyncio.sleep(0)


def test_senders_of_one_process_do_not_race_for_the_next_number() -> None:
    """A hundred children that end at once tell their parent: each message costs as much as a lone one."""

    async def cost(number: int) -> float:
        bucket = Yielding()
        store = await ObjectStore.on(bucket, clock=ManualClock())
        await Author(RunId("r"), ManualClock(), count(1), {}).create(store)
        bucket.counts.clear()
        receipts = await asyncio.gather(*(store.send(message(RunId("r"), f"d-{each}")) for each in range(number)))
        assert sorted(receipt.number for receipt in receipts) == list(range(1, number + 1))
        return bucket.counts["calls"] / number

    few, many = asyncio.run(cost(10)), asyncio.run(cost(100))
    assert many <= few + 1


def test_to_look_at_one_run_of_a_folder_costs_the_same_however_many_others_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Counter[str]()
    entries = folder_listing._entries

    def counted(root: Path, folder: str) -> object:
        found = entries(root, folder)
        looked["names"] += len(found)
        return found

    monkeypatch.setattr(folder_listing, "_entries", counted)

    async def cost(others: int) -> int:
        clock = ManualClock()
        store = await FolderStore.open(tmp_path / f"{others}", clock=clock, durable=False)
        for name in ("one", *(f"other-{number}" for number in range(others))):
            await Author(RunId(name), clock, count(1), {}).create(store)
        looked.clear()
        assert await store.run(RunId("one")) is not None
        assert len(await store.events(RunId("one"))) == 1
        assert await store.inbox(RunId("one")) == []
        await store.send(message("one", "d"))
        await store.close()
        return looked["names"]

    assert asyncio.run(cost(2)) == asyncio.run(cost(40))


def test_a_hundred_processes_that_send_to_one_run_at_once_make_few_writes() -> None:
    """Without pauses each sender would try nearly every number: some 5,000 writes. Each request takes 20 ms here."""

    async def writes() -> tuple[int, list[str]]:
        data, clock, puts = MemoryData(), SkippingClock(), 0

        async def on_call(operation: str, key: str, phase: str) -> None:
            nonlocal puts
            if phase == "before":
                puts += operation in ("create", "replace", "put")
                await asyncio.sleep(0.02)

        with skipping_time(asyncio.get_running_loop(), clock, Outside(), lambda: False, lambda: None):
            stores = [ObjectStore(MemoryBucket(data, on_call), clock) for _ in range(100)]
            owner = await register(stores[0], "owner")
            author = await Author(RunId("one"), clock, count(1), {}).create(stores[0], Held(owner))
            puts = 0
            await asyncio.gather(*(store.send(message("one", f"d{number}")) for number, store in enumerate(stores)))
            sent = puts
            assert [each.number for each in await stores[1].inbox(RunId("one"))] == list(range(1, 101))
            await author.append(stores[0], started(1), seen=64)
            await stores[0].mark_read(RunId("one"), owner, 100)
        return sent, [key for key in data.keys if key.startswith(layout.WAKE)]

    sent, left = asyncio.run(writes())
    assert left == []
    assert sent <= 600, sent


def test_a_number_that_a_killed_sender_was_after_is_taken_by_the_next_one() -> None:
    async def test() -> None:
        data, clock = MemoryData(), SkippingClock()
        with skipping_time(asyncio.get_running_loop(), clock, Outside(), lambda: False, lambda: None):
            store = ObjectStore(MemoryBucket(data), clock)
            await Author(RunId("one"), clock, count(1), {}).create(store)
            data.put(layout.wake_key(RunId("one"), 1), b"{}")
            assert (await store.send(message("one", "d"))).number == 1

    asyncio.run(test())
