"""Copies and purges in objects: a crash at any write leaves nothing to be seen, or what a repetition completes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import pytest

from buoy.core.ids import RunnerId
from buoy.core.log import events as e
from buoy.core.log.events import NULL
from buoy.core.log.lifecycle import Status
from buoy.errors import CorruptLog, Unavailable, UnknownRun
from buoy.ports.maintenance import RunCopy
from buoy.ports.records import Ended, FencedOut, RunQuery, Wants
from buoy.stores.objects import layout
from buoy.stores.objects.archive import PART_EVENTS
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.commit import PURGED_SINCE_S
from buoy.stores.objects.index.entries import REAP_AFTER_S
from buoy.stores.objects.layout import WAKE
from buoy.stores.objects.records import LogObject, TaskState
from buoy.stores.objects.runs import LATELY_S
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.archive import copy_of, stone_of
from buoy.testing.contracts.harness import claimed, message, register, started

from .object_world import RUN, Crash, Fault, World, ended, messaged, settled
from .object_world import held as held_run


def _copy() -> RunCopy:
    return copy_of(
        claimed("r0"), *(started(n) for n in range(PART_EVENTS)), e.Paused(reason="hold"), messages=5
    )  # fmt: skip


async def _nothing_wakes(world: World, store: ObjectStore) -> None:
    await register(store, "medic")
    for _ in range(3):
        assert await store.claim_tasks(RunnerId("medic"), Wants(), 5) == []
        assert await store.orphans(5) == []
        await store.find_runs(RunQuery())
        await store.find_runs(RunQuery((Status.PAUSED,)))
        world.clock.advance(REAP_AFTER_S + 1.0)


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("dies", [True, False])
def test_an_import_that_failed_anywhere_is_unseen_or_completed_by_a_repetition(phase: str, dies: bool) -> None:
    async def play(fault: Fault) -> bool:
        world, copy = World(fault), _copy()
        store = await world.failing()
        fault.armed = True
        with suppress(Crash, Unavailable):
            await store.archive.import_run(copy)
        fault.armed = False
        other = await world.fresh()
        record = await other.run(RUN)
        if record is not None:
            assert record.document == copy.document
            assert await other.events(RUN) == list(copy.events)
            with suppress(CorruptLog):
                found = await other.inbox(RUN)
                assert found in ([], list(copy.messages)), "a part of an inbox that looks whole"
            assert record.inbox_head == 5
        await _nothing_wakes(world, other)
        assert await other.archive.import_run(copy)
        assert await other.events(RUN) == list(copy.events)
        assert await other.inbox(RUN) == list(copy.messages)
        assert [each.document for each in (await other.find_runs(RunQuery())).runs] == [copy.document]
        return fault.struck

    _everywhere(play, phase, dies)


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("ends", [ended, settled])
def test_a_purge_that_failed_anywhere_is_not_begun_or_completed_by_a_repetition(
    phase: str, dies: bool, ends: Callable[[World, ObjectStore], Awaitable[None]]
) -> None:
    async def play(fault: Fault) -> bool:
        world = World(fault)
        store = await world.failing()
        await register(store, "r1")
        await ends(world, store)
        await world.fresh()
        stone = await stone_of(store)
        log = await store.events(RUN)
        fault.armed = True
        with suppress(Crash, Unavailable):
            await store.archive.purge(stone)
        fault.armed = False
        other = await world.fresh()
        if await other.archive.tombstone(RUN) is None:
            assert await other.events(RUN) == log
            assert sum((await other.counts()).values()) == len((await other.find_runs(RunQuery())).runs) == 1
            assert await other.archive.purge(await stone_of(other))
        else:
            assert await other.run(RUN) is None
            assert await other.events(RUN) == []
            assert await other.counts() == {} and (await other.find_runs(RunQuery())).runs == ()
            assert await other.archive.half_purged() in ([], [RUN])
            assert await other.archive.purge(stone)
        assert await other.archive.tombstone(RUN) == stone
        assert await other.archive.half_purged() == []
        await _nothing_wakes(world, other)
        left = [key for key in world.data.keys if RUN in key]
        assert left == [f"workflow/{RUN}/log/{seq:012}.json" for seq in (1, stone.head_seq + 1)]
        return fault.struck

    _everywhere(play, phase, dies)


def test_a_message_to_a_run_that_ended_leaves_no_wake_up() -> None:
    async def play() -> None:
        world = World(Fault(-1, "before", dies=False))
        store = await world.fresh()
        await register(store, "r1")
        await ended(world, store)
        await store.send(message(RUN, "late"))
        assert [each.dedupe for each in await store.inbox(RUN)] == ["late"]
        assert [key for key in world.data.keys if key.startswith(WAKE)] == []
        assert [each async for each in store.integrity.index_troubles() if each is not None] == []

    asyncio.run(play())


def test_a_run_that_is_purged_while_it_is_read_is_gone_and_not_corrupt() -> None:
    """The whole purge happens before each of the reader's calls in turn."""

    async def play(at: int) -> bool:
        world = World(None)
        store = await world.fresh()
        await register(store, "r1")
        await messaged(world, store)
        await world.author.append(store, e.WorkflowCompleted(), task=Ended())
        log, stone = await store.events(RUN), await stone_of(store)
        calls = 0

        async def purges(operation: str, key: str, phase: str) -> None:
            nonlocal calls
            calls += phase == "before"
            if calls == at and phase == "before":
                assert await store.archive.purge(stone)

        reader = await ObjectStore.on(MemoryBucket(world.data, purges), clock=world.clock)
        assert await reader.events(RUN) in ([], log)
        await reader.run(RUN)
        with suppress(UnknownRun):
            await reader.inbox(RUN)
        return calls >= at

    at = 1
    while asyncio.run(play(at)):
        at += 1
    assert at > 8, "the purge came between few calls"


def test_who_slept_for_long_writes_nothing_into_the_gaps_of_a_purged_run() -> None:
    async def play() -> None:
        world = World(None)
        store, zombie = await world.fresh(), await world.fresh()
        await register(store, "r1")
        await held_run(world, store)
        sleeper = world.new_author(RUN)
        sleeper.log = await zombie.events(RUN)
        assert await zombie.run(RUN) is not None
        late = sleeper.draft(started(1))
        await world.author.append(store, started(1))
        await world.author.append(store, e.WorkflowCompleted(), task=Ended())
        assert await store.archive.purge(await stone_of(store))
        world.clock.advance(LATELY_S + 1.0)
        assert isinstance((await zombie.commit([late]))[0], FencedOut)

    asyncio.run(play())


def test_who_is_held_up_in_the_middle_of_a_commit_writes_nothing_into_the_gaps_of_a_purged_run() -> None:
    """Between its last look and its write the run is taken over, ends and is purged."""

    async def play() -> None:
        world = World(None)
        store = await world.fresh()
        await register(store, "r1")
        await held_run(world, store)
        sleeper = world.new_author(RUN)
        sleeper.log = await store.events(RUN)
        late = sleeper.draft(started(1))
        place = layout.log_key(RUN, late.after_seq + 1)

        async def sleeps(operation: str, key: str, phase: str) -> None:
            if (operation, key, phase) == ("create", place, "before"):
                await world.author.append(store, started(1))
                await world.author.append(store, e.WorkflowCompleted(), task=Ended())
                assert await store.archive.purge(await stone_of(store))
                world.clock.advance(PURGED_SINCE_S + 1.0)

        zombie = await ObjectStore.on(MemoryBucket(world.data, sleeps), clock=world.clock)
        assert await zombie.run(RUN) is not None
        assert isinstance((await zombie.commit([late]))[0], FencedOut)
        assert place not in world.data.objects
        # An unclear answer is read back by number and nonce: what lies in a grave does not count.
        lost = LogObject(late.events[-1].seq, NULL, NULL, TaskState("none", 1), nonce=late.events[0].nonce)
        world.data.put(place, msgspec.json.encode(lost))
        assert isinstance((await store.landed([late]))[0], FencedOut)

    asyncio.run(play())


def test_what_a_process_read_before_it_was_frozen_is_as_old_as_the_read() -> None:
    """It asks for its run, and gets the answer when the run was taken over, ended and was purged."""

    async def play() -> None:
        world = World(None)
        store = await world.fresh()
        await register(store, "r1")
        await held_run(world, store)
        sleeper = world.new_author(RUN)
        sleeper.log = await store.events(RUN)
        late = sleeper.draft(started(1))
        frozen = False

        async def freezes(operation: str, key: str, phase: str) -> None:
            nonlocal frozen
            if not frozen and operation == "get" and "/log/" in key and phase == "after":
                frozen = True
                await world.author.append(store, started(1))
                await world.author.append(store, e.WorkflowCompleted(), task=Ended())
                assert await store.archive.purge(await stone_of(store))
                world.clock.advance(PURGED_SINCE_S + 1.0)

        zombie = await ObjectStore.on(MemoryBucket(world.data, freezes), clock=world.clock)
        assert await zombie.run(RUN) is not None
        assert frozen
        assert isinstance((await zombie.commit([late]))[0], FencedOut)

    asyncio.run(play())


def test_a_purge_removes_messages_and_their_wake_ups() -> None:
    async def play() -> None:
        world = World(None)
        store = await world.fresh()
        await register(store, "r1")
        await messaged(world, store)
        await world.author.append(store, e.WorkflowCompleted(), task=Ended())
        assert await store.archive.purge(await stone_of(store))
        assert not [key for key in world.data.keys if "inbox" in key or "dedupe" in key or key.startswith("wake/")]

    asyncio.run(play())


def test_a_run_that_goes_on_is_not_purged_by_an_old_look() -> None:
    async def play() -> None:
        world = World(None)
        store = await world.fresh()
        await register(store, "r1")
        await held_run(world, store)
        assert not await store.archive.purge(await stone_of(store))
        assert await store.archive.half_purged() == []

    asyncio.run(play())


def _everywhere(play, phase: str, dies: bool) -> None:  # type: ignore[no-untyped-def]
    tried = 0
    for at in range(1, 200):
        if not asyncio.run(play(Fault(at, phase, dies=dies))):
            break
        tried += 1
    assert tried >= 5, "the fault hardly ever struck"
