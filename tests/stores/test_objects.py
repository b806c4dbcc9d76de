"""The object store by itself: lag and damage of documents, claims that cross, index entries, and what things cost."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.errors import CorruptLog, StoreUnusable, Unavailable
from buoy.ports.records import Beat, Committed, Ended, FencedOut, Held, Orphan, Released, RunQuery, Wants, Write
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.index.entries import REAP_AFTER_S
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.harness import claimed, completed, message, register, started

from .object_world import MEDIC, R1, RUN, SIGNAL, WRITES, Crash, Fault, World, held, parked

STATE = layout.state_key(RUN)


async def _claim(store: ObjectStore, runner: str) -> list[str]:
    return [task.run_id for task in await store.claim_tasks(RunnerId(runner), Wants(), 10)]


async def _world_with_two() -> tuple[World, ObjectStore, ObjectStore]:
    world = World(None)
    store, other = await world.fresh(), await world.fresh()
    await register(store, "r1")
    await register(other, MEDIC)
    return world, store, other


# Documents: a cache of the log, and no more.


def test_a_release_that_was_lost_with_its_document_is_lost_for_who_made_it_too() -> None:
    """Else its maker would wait for others to take the run, and they for him, who holds it."""

    async def play() -> None:
        world, store, other = await _world_with_two()
        await held(world, store)
        assert await store.release(RUN, R1, Released(due_at=None, now=0.0))
        world.data.remove(STATE)
        assert (await other.run(RUN)).holder == R1  # type: ignore[union-attr]
        assert (await store.run(RUN)).holder == R1  # type: ignore[union-attr]
        await other.orphans(10)
        assert [each.document.run_id for each in (await store.find_runs(RunQuery(holder=R1))).runs] == [RUN]

    asyncio.run(play())


@pytest.mark.parametrize("damage", ["lost", "garbage", "of another version"])
def test_a_damaged_document_loses_nothing(damage: str) -> None:
    async def play() -> None:
        world, store, _ = await _world_with_two()
        await held(world, store)
        await world.author.append(
            store, started(1), completed(1), task=Released(due_at=world.clock.now(), now=world.clock.now())
        )
        before = await store.run(RUN)
        if damage == "lost":
            world.data.remove(STATE)
        else:
            world.data.put(STATE, b"\xff{" if damage == "garbage" else b'{"counter": 1}')
        again = await world.fresh()
        assert await again.run(RUN) == before
        assert await _claim(again, MEDIC) == [RUN]
        assert (await store.run(RUN)).holder == MEDIC  # type: ignore[union-attr]

    asyncio.run(play())


def test_the_document_of_a_commit_that_cannot_be_read_is_folded_from_the_log() -> None:
    async def play() -> None:
        world, store, other = await _world_with_two()
        await held(world, store)
        world.data.remove(STATE)
        key = layout.log_key(RUN, 2)
        stored = msgspec.json.decode(world.data.objects[key][0])
        world.data.put(key, msgspec.json.encode({**stored, "document": {"written": "by another version"}}))
        record = await other.run(RUN)
        assert record is not None
        assert record.document == document(fold(RUN, world.author.log))

    asyncio.run(play())


def test_readers_see_every_commit_although_the_document_is_not_saved_each_time() -> None:
    async def play() -> None:
        world, store, other = await _world_with_two()
        await held(world, store)
        saves = 0
        for number in range(200):
            before = world.data.objects[STATE][1]
            await world.author.append(store, started(number), completed(number))
            saves += world.data.objects[STATE][1] != before
            record = await other.run(RUN)
            assert record is not None
            assert record.document == document(fold(RUN, world.author.log))
            assert record.holder == R1
        assert 1 <= saves <= 10

    asyncio.run(play())


def test_an_append_that_does_not_follow_the_last_commit_is_fenced() -> None:
    async def play() -> None:
        world, store, other = await _world_with_two()
        await held(world, store)
        await world.author.append(store, started(1), completed(1), started(2))
        for each in (store, other, await world.fresh()):
            for after in (1, 3, 4, 6, 50):
                event = e.Event(after + 1, 1.0, completed(2), nonce="zombie")
                write = Write(RUN, after, (event,), document(fold(RUN, world.author.log)))
                assert await each.commit([write]) == [FencedOut(5)]
        assert await other.events(RUN) == world.author.log

    asyncio.run(play())


def test_a_gap_in_the_log_is_said_and_not_read_over() -> None:
    async def play() -> None:
        world, store, other = await _world_with_two()
        await held(world, store)
        await world.author.append(store, started(1))
        await world.author.append(store, completed(1))
        world.data.remove(layout.log_key(RUN, 3))
        with pytest.raises(CorruptLog, match="event 3"):
            await other.events(RUN)

    asyncio.run(play())


def test_a_listing_that_misses_a_commit_is_filled_in() -> None:
    """A folder that is listed while files are added may show the later one and not the earlier one."""

    class Blind(MemoryBucket):
        async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
            hidden = (layout.log_key(RUN, 3), layout.inbox_key(RUN, 1))
            return [key for key in await super().list(prefix, after, limit) if key not in hidden]

    async def play() -> None:
        world, store, _ = await _world_with_two()
        await held(world, store)
        await world.author.append(store, started(1))
        await world.author.append(store, completed(1))
        for dedupe in ("a", "b"):
            await store.send(message(RUN, dedupe))
        blind = await ObjectStore.on(Blind(world.data), clock=world.clock)
        assert await blind.events(RUN) == world.author.log
        assert [each.number for each in await blind.inbox(RUN)] == [1, 2]

    asyncio.run(play())


# Claims.


@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_claim_whose_answer_was_lost_is_delivered_later_and_once(phase: str) -> None:
    async def play(at: int) -> bool:
        fault = Fault(at, phase, dies=False)
        world = World(fault)
        store = await world.failing()
        await register(store, "r1")
        await world.author.create(store)
        fault.armed = True
        got: list[str] = []
        for _ in range(4):
            try:
                got += await _claim(store, "r1")
            except Unavailable:
                continue
        record = await (await world.fresh()).run(RUN)
        assert record is not None
        assert (got, record.holder) == ([RUN], R1)
        return fault.struck

    at = 1
    while asyncio.run(play(at)):
        at += 1
    assert at > 5


def test_a_claim_that_was_cancelled_is_delivered_later() -> None:
    async def play(at: int) -> bool:
        world, store, _ = await _world_with_two()
        await world.author.create(store)
        calls = 0
        reached = asyncio.Event()

        async def stop_there(operation: str, key: str, phase: str) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                reached.set()
                await asyncio.Event().wait()

        bucket = MemoryBucket(world.data, stop_there)
        slow = ObjectStore(bucket, world.clock)
        claiming = asyncio.create_task(_claim(slow, "r1"))
        stopping = asyncio.create_task(reached.wait())
        await asyncio.wait([claiming, stopping], return_when=asyncio.FIRST_COMPLETED)
        cancelled = not claiming.done()
        claiming.cancel()
        stopping.cancel()
        bucket.on_call = None
        again = await _claim(slow, "r1")
        assert again == ([RUN] if cancelled else [])
        record = await store.run(RUN)
        assert record is not None and record.holder == R1
        return cancelled

    at = 1
    while asyncio.run(play(at)):
        at += 1
    assert at > 10


@pytest.mark.parametrize("stalls_at", ["held/", "workflow/run-1/state.json", "living/"])
def test_a_runner_that_is_declared_dead_while_it_claims_keeps_nothing(stalls_at: str) -> None:
    async def play(nth: int) -> bool:
        world, store, medic = await _world_with_two()
        await world.author.create(store)
        hits = 0

        async def declare_dead_there(operation: str, key: str, phase: str) -> None:
            nonlocal hits
            if key.startswith(stalls_at) and phase == "before":
                hits += 1
                if hits == nth:
                    await medic.declare_dead(R1, "slow", cause="taken_over", evidence={})

        slow = ObjectStore(MemoryBucket(world.data, declare_dead_there), world.clock)
        got = await _claim(slow, "r1")
        if hits < nth:
            assert got == [RUN]
            return False
        assert got == []
        assert await medic.orphans(10) == []
        assert await _claim(medic, MEDIC) == [RUN]
        return True

    nth = 1
    while asyncio.run(play(nth)):
        nth += 1
    assert nth > 1


@pytest.mark.parametrize("dies", [True, False], ids=["dead", "alive"])
def test_a_runner_that_is_not_known_to_live_gets_its_tasks_later_or_never(dies: bool) -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await world.author.create(store)
        away = answers = False

        async def silent(operation: str, key: str, phase: str) -> None:
            nonlocal away
            if operation in WRITES and key == STATE and phase == "after" and not away:
                away = True
                if dies:
                    await medic.declare_dead(R1, "slow", cause="taken_over", evidence={})
            elif away and not answers and operation == "get" and key.startswith(layout.LIVING):
                raise Unavailable("no answer")

        slow = ObjectStore(MemoryBucket(world.data, silent), world.clock)
        with pytest.raises(Unavailable):
            await _claim(slow, "r1")
        answers = True
        assert await _claim(slow, "r1") == ([] if dies else [RUN])
        assert await _claim(medic, MEDIC) == ([RUN] if dies else [])

    asyncio.run(play())


def test_a_claim_under_way_fails_when_its_runner_is_declared_dead() -> None:
    """Its process would die right after the claim, so only the declaration of its death could release the task."""

    async def play() -> None:
        world, store, medic = await _world_with_two()
        await world.author.create(store)

        async def declare_dead_then_die(operation: str, key: str, phase: str) -> None:
            if operation in ("create", "replace") and (key, phase) == (STATE, "before"):
                await medic.declare_dead(R1, "slow", cause="taken_over", evidence={})
            if operation in ("create", "replace") and (key, phase) == (STATE, "after"):
                raise Crash

        slow = ObjectStore(MemoryBucket(world.data, declare_dead_then_die), world.clock)
        assert await _claim(slow, "r1") == []
        assert await _claim(medic, MEDIC) == [RUN]

    asyncio.run(play())


def test_a_release_whose_answer_was_lost_is_read_back() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await held(world, store)
        lost = 0

        async def lose_the_answer(operation: str, key: str, phase: str) -> None:
            nonlocal lost
            if operation in ("create", "replace") and (key, phase) == (STATE, "after"):
                lost += 1
                raise Unavailable("no answer")

        slow = ObjectStore(MemoryBucket(world.data, lose_the_answer), world.clock)
        assert await slow.release(RUN, R1, Released(due_at=world.clock.now(), now=world.clock.now()))
        assert lost == 1
        assert await _claim(medic, MEDIC) == [RUN]

    asyncio.run(play())


def test_a_claimer_that_the_zombie_fenced_does_not_hold_the_run_for_ever() -> None:
    """Declared dead too early, the old owner appends once more before its successor does."""

    async def play() -> None:
        world, store, medic = await _world_with_two()
        await world.author.create(store)
        assert await _claim(store, "r1") == [RUN]
        await medic.declare_dead(R1, "too early", cause="taken_over", evidence={})
        assert await _claim(medic, MEDIC) == [RUN]
        draft = world.author.draft(claimed(MEDIC), task=Held(MEDIC))
        await world.author.append(store, claimed("r1"), task=Held(R1))
        assert await medic.commit([draft]) == [FencedOut(2)]
        (orphan,) = await medic.orphans(10)
        assert (orphan.run_id, orphan.holder) == (RUN, R1)
        assert await medic.requeue_orphan(orphan)
        assert await _claim(medic, MEDIC) == [RUN]

    asyncio.run(play())


def test_of_many_claimers_one_gets_each_task() -> None:
    async def play() -> None:
        world = World(None)
        first = await world.fresh()
        for number in range(20):
            await world.new_author(f"run-{number}").create(first)

        async def give_way(operation: str, key: str, phase: str) -> None:
            await asyncio.sleep(0)

        stores = [ObjectStore(MemoryBucket(world.data, give_way), world.clock) for _ in range(5)]
        for number, store in enumerate(stores):
            await register(store, f"r{number}")
        got = await asyncio.gather(*(_claim(store, f"r{number}") for number, store in enumerate(stores)))
        got += await asyncio.gather(*(_claim(store, f"r{number}") for number, store in enumerate(stores)))
        names = sorted(name for some in got for name in some)
        assert names == sorted(f"run-{number}" for number in range(20))

    asyncio.run(play())


# Index entries.


def test_an_entry_whose_truth_is_on_its_way_is_reaped_only_at_a_second_late_look() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await held(world, store)
        entries = [
            layout.task_key("default", 1.0, False, RunId("nobody"), layout.Version(1, 0), "x"),
            layout.task_key("default", 1.0, True, RUN, layout.Version(9, 0), "x"),
            layout.wake_key(RUN, 5),
            layout.wake_key(RunId("nobody"), 1),
            layout.active_key(RunId("nobody"), 1.0, 1),
            layout.index_key(RunId("nobody"), 1.0),
            layout.held_key(RunnerId("stranger"), RUN, layout.Version(9, 0)),
        ]
        for key in entries:
            world.data.put(key, b'{"workflow": "order"}')

        async def look() -> None:
            await medic.unread_runs(R1)
            await store.unread_runs(R1)
            await _claim(medic, MEDIC)
            await medic.orphans(10)
            await medic.find_runs(RunQuery())

        await look()
        world.clock.advance(REAP_AFTER_S - 1.0)
        await look()
        assert all(key in world.data.objects for key in entries)
        # A new process has not seen them before, and starts its own count.
        await _claim(await world.fresh(), MEDIC)
        assert all(key in world.data.objects for key in entries)
        world.clock.advance(1.0)
        await look()
        # The wake-up of a held run is its owner's to judge.
        assert [key for key in entries if key in world.data.objects] == []

    asyncio.run(play())


def test_a_read_error_is_never_taken_for_absence() -> None:
    async def play() -> None:
        world, store, _ = await _world_with_two()
        await world.author.create(store)
        await store.send(message(RUN, "hello"))

        async def no_answer(operation: str, key: str, phase: str) -> None:
            if operation in ("get", "list") and key.startswith("workflow/"):
                raise Unavailable("no answer")

        medic = ObjectStore(MemoryBucket(world.data, no_answer), world.clock)
        before = dict(world.data.objects)
        for _ in range(3):
            for call in (
                medic.claim_tasks(MEDIC, Wants(), 10),
                medic.orphans(10),
                medic.find_runs(RunQuery()),
                medic.run(RUN),
                medic.requeue_orphan(Orphan(RUN, None, "?")),
            ):
                with pytest.raises(Unavailable):
                    await call
            world.clock.advance(REAP_AFTER_S)
        assert world.data.objects == before

    asyncio.run(play())


@pytest.mark.parametrize("what", ["create", "wait", "send"])
def test_a_writer_that_was_held_up_writes_its_entry_again(what: str) -> None:
    """Between its index entry and its truth the process sleeps so long that others reap the entry."""

    async def play() -> None:
        world, store, medic = await _world_with_two()
        if what != "create":
            await (held if what == "wait" else parked)(world, store)
        due_at = world.clock.now() + 10.0
        slept = False

        async def sleep(operation: str, key: str, phase: str) -> None:
            nonlocal slept
            if phase == "after" and operation == "create" and key.startswith(("tasks/", "wake/")) and not slept:
                slept = True
                for _ in range(3):
                    await medic.claim_tasks(MEDIC, Wants(queues=("default",)), 1)
                    await medic.orphans(10)
                    await medic.find_runs(RunQuery())
                    world.clock.advance(REAP_AFTER_S)

        slow = ObjectStore(MemoryBucket(world.data, sleep), world.clock)
        if what == "create":
            await world.author.create(slow)
        elif what == "wait":
            await world.author.append(slow, SIGNAL, task=Released(due_at=due_at, now=world.clock.now()))
        else:
            await slow.send(message(RUN, "hello"))
        assert slept
        assert await _claim(medic, MEDIC) == [RUN]
        assert RUN in [record.document.run_id for record in (await medic.find_runs(RunQuery())).runs]

    asyncio.run(play())


def test_a_second_starter_leaves_nothing_behind() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        first = world.author.first()

        async def start_between(operation: str, key: str, phase: str) -> None:
            if operation == "create" and key == layout.log_key(RUN, 1) and phase == "before":
                await store.commit([first])

        world.clock.advance(5.0)
        late = world.new_author(RUN).first(Released(due_at=world.clock.now(), now=world.clock.now()))
        slow = ObjectStore(MemoryBucket(world.data, start_between), world.clock)
        assert await slow.commit([late]) == [FencedOut(1)]
        page = await medic.find_runs(RunQuery())
        assert [record.document.run_id for record in page.runs] == [RUN]
        assert await medic.orphans(10) == []
        assert await _claim(medic, MEDIC) == [RUN]
        assert await _claim(medic, MEDIC) == []
        assert [key for key in world.index_keys() if not key.startswith("held/")] == [
            layout.active_key(RUN, first.document.created_at, 1)
        ]
        assert len([key for key in world.data.keys if key.startswith("index/")]) == 0

    asyncio.run(play())


def test_what_cannot_be_tidied_up_after_a_commit_is_no_error_of_it() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await held(world, store)
        full = False

        async def disk_full(operation: str, key: str, phase: str) -> None:
            nonlocal full
            if full and phase == "before":
                raise StoreUnusable("full")
            full = full or (phase == "after" and operation == "create" and key.startswith("workflow/run-1/log/"))

        slow = ObjectStore(MemoryBucket(world.data, disk_full), world.clock)
        draft = world.author.draft(SIGNAL, task=Released(due_at=world.clock.now(), now=world.clock.now()))
        assert await slow.commit([draft]) == [Committed(3)]
        assert slow.index.leftovers >= 1
        assert await _claim(medic, MEDIC) == [RUN]

    asyncio.run(play())


def test_an_active_run_whose_entries_were_lost_is_an_orphan() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await world.author.create(store)
        for key in [key for key in world.data.keys if key.startswith("tasks/")]:
            world.data.remove(key)
        assert await _claim(medic, MEDIC) == []
        (orphan,) = await medic.orphans(10)
        assert (orphan.run_id, orphan.holder, orphan.why) == (RUN, None, "its task is in no queue")
        assert await medic.requeue_orphan(orphan)
        assert not await store.requeue_orphan(orphan)
        assert await _claim(medic, MEDIC) == [RUN]

    asyncio.run(play())


def test_a_message_whose_wake_up_was_lost_makes_an_orphan() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await parked(world, store)
        assert await medic.orphans(10) == []
        await store.send(message(RUN, "hello"))
        assert await medic.orphans(10) == []
        world.data.remove(layout.wake_key(RUN, 1))
        (orphan,) = await medic.orphans(10)
        assert await medic.requeue_orphan(orphan)
        assert await _claim(medic, MEDIC) == [RUN]

    asyncio.run(play())


def test_a_lost_entry_of_a_living_holder_is_written_again() -> None:
    async def play() -> None:
        world, store, medic = await _world_with_two()
        await held(world, store)
        for key in [key for key in world.data.keys if key.startswith("held/")]:
            world.data.remove(key)
        assert await medic.orphans(10) == []
        assert await medic.declare_dead(R1, "proof", cause="taken_over", evidence={}) == 1

    asyncio.run(play())


def test_a_sweep_of_many_active_runs_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.stores.objects.reclaim.SUSPECTS_MAX", 4)

    async def play() -> None:
        world, store, medic = await _world_with_two()
        for number in range(10):
            world.clock.advance(1.0)
            await world.new_author(f"run-{number}").create(store)
        for key in [key for key in world.data.keys if key.startswith("tasks/")]:
            world.data.remove(key)
        found = [orphan.run_id for _ in range(3) for orphan in await medic.orphans(10)]
        assert {f"run-{number}" for number in range(10)} == set(found)

    asyncio.run(play())


# The bucket as a whole.


def test_a_bucket_with_other_things_in_it_is_refused() -> None:
    async def play() -> None:
        world = World(None)
        world.data.put("holiday.jpg", b"...")
        with pytest.raises(StoreUnusable, match="no Buoy store"):
            await world.fresh()

    asyncio.run(play())


@pytest.mark.parametrize(("marker", "words"), [(b'{"format": 4}', "newer Buoy"), (b"[]", "cannot be read")])
def test_a_bucket_of_an_unknown_format_is_refused(marker: bytes, words: str) -> None:
    async def play() -> None:
        world = World(None)
        world.data.put(layout.MARKER, marker)
        with pytest.raises(StoreUnusable, match=words):
            await world.fresh()

    asyncio.run(play())


# What things cost: (writes, reads, lists); deletes are free on S3. Raising a number here is raising users' bills.


class Meter:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def __call__(self, operation: str, key: str, phase: str) -> None:
        if phase == "before":
            self.calls[operation] += 1

    def spent(self) -> tuple[int, int, int]:
        found = (self.calls["create"] + self.calls["replace"], self.calls["get"], self.calls["list"])
        self.calls.clear()
        return found


def test_what_the_operations_cost() -> None:
    async def play() -> dict[str, tuple[int, int, int]]:
        world = World(None)
        meter = Meter()
        store = await ObjectStore.on(MemoryBucket(world.data, meter), clock=world.clock)
        await register(store, "r1")
        await store.claim_tasks(R1, Wants(), 10)
        meter.spent()
        costs: dict[str, tuple[int, int, int]] = {}

        async def costing(name: str, call: object) -> None:
            await call  # type: ignore[misc]
            costs[name] = meter.spent()

        author = world.author
        await costing("create", author.create(store))
        await costing("claim one", store.claim_tasks(R1, Wants(), 10))
        await costing("claim none", store.claim_tasks(R1, Wants(), 10))
        await costing("claimed", author.append(store, claimed("r1"), task=Held(R1)))
        await costing("step", author.append(store, started(1), completed(1)))
        await costing("run", store.run(RUN))
        await costing("events", store.events(RUN, after=4))
        await costing("pokes, none", store.unread_runs(R1))
        await costing("send", store.send(message(RUN, "a")))
        await costing("pokes, one", store.unread_runs(R1))
        await costing("inbox, one", store.inbox(RUN))
        await costing("mark_read", store.mark_read(RUN, R1, 1))
        await costing(
            "wait for a time",
            author.append(store, SIGNAL, task=Released(world.clock.now(), now=world.clock.now(), seen=1)),
        )
        await store.claim_tasks(R1, Wants(), 10)
        await author.append(store, claimed("r1"), task=Held(R1))
        meter.spent()
        await costing("wait for a message", author.append(store, started(2), task=Released(None, now=0.0, seen=1)))
        await author.append(store, claimed("r1"), task=Held(R1))
        meter.spent()
        await costing("end", author.append(store, e.WorkflowCompleted(), task=Ended()))
        await costing("beat", store.beat(R1, Beat(number=1)))
        await costing("orphans, none active", store.orphans(10))
        return costs

    assert asyncio.run(play()) == {
        "create": (3, 1, 0),
        "claim one": (2, 4, 3),
        "claim none": (0, 0, 2),
        "claimed": (1, 0, 0),
        "step": (1, 0, 0),
        "run": (0, 2, 2),
        "events": (0, 0, 1),
        "pokes, none": (0, 0, 1),
        "send": (2, 1, 1),
        "pokes, one": (0, 2, 4),
        "inbox, one": (0, 1, 1),
        "mark_read": (0, 2, 2),
        "wait for a time": (3, 0, 0),
        "wait for a message": (3, 0, 0),
        "end": (3, 0, 0),
        "beat": (1, 0, 0),
        "orphans, none active": (0, 0, 2),
    }
