"""A message repeats the dedupe ids of those before it: a twin is found by few reads, in whatever way they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from buoy.ports.records import Message
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.inbox.dedupe_ids import REPEATED
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.harness import message

from .object_world import RUN, World

MANY = 2 * (REPEATED + 1) + 5


class Counted(MemoryBucket):
    """Counts the messages that are read."""

    reads = 0

    async def get(self, key: str) -> tuple[bytes, str] | None:
        self.reads += "/inbox/" in key
        return await super().get(key)


def _play(story: Callable[[World, ObjectStore, Counted, ObjectStore], Awaitable[None]]) -> None:
    async def play() -> None:
        world = World(None)
        first = await world.fresh()
        await first.commit([world.author.first()])
        for number in range(1, MANY + 1):
            assert (await first.send(message(RUN, f"id {number}"))).number == number
        bucket = Counted(world.data)
        await story(world, first, bucket, await ObjectStore.on(bucket, clock=world.clock))

    asyncio.run(play())


def test_another_process_finds_each_twin_by_one_read_for_64_messages() -> None:
    async def story(world: World, first: ObjectStore, bucket: Counted, other: ObjectStore) -> None:
        receipt = await other.send(message(RUN, "id 1"))
        assert (receipt.number, receipt.duplicate) == (1, True)
        # Three for the ids, one to be sure of the twin.
        assert bucket.reads == 4
        for number in (2, REPEATED, MANY):
            receipt = await other.send(message(RUN, f"id {number}"))
            assert (receipt.number, receipt.duplicate) == (number, True)
        assert bucket.reads == 4 + 3
        receipt = await other.send(message(RUN, "new"))
        assert (receipt.number, receipt.duplicate, bucket.reads) == (MANY + 1, False, 4 + 3)

    _play(story)


def test_the_processes_learn_of_each_others_messages() -> None:
    async def story(world: World, first: ObjectStore, bucket: Counted, other: ObjectStore) -> None:
        for number in range(20):
            store, twin = (first, other) if number % 2 else (other, first)
            there = (await store.send(message(RUN, f"more {number}"))).number
            receipt = await twin.send(message(RUN, f"more {number}"))
            assert (receipt.number, receipt.duplicate) == (there, True)
        ids = [each.dedupe for each in await first.inbox(RUN)]
        assert len(ids) == len(set(ids)) == MANY + 20

    _play(story)


@pytest.mark.parametrize("kept", ["none", "some"])
def test_a_twin_is_found_among_messages_that_an_earlier_buoy_wrote(kept: str) -> None:
    async def story(world: World, first: ObjectStore, bucket: Counted, other: ObjectStore) -> None:
        for number in range(1, MANY + 1):
            if kept == "none" or number % 7:
                key = layout.inbox_key(RUN, number)
                stored = msgspec.json.decode(world.data.objects[key][0], type=Message)
                world.data.put(key, msgspec.json.encode(stored))
        for number in (1, 2, 40, MANY):
            receipt = await other.send(message(RUN, f"id {number}"))
            assert (receipt.number, receipt.duplicate) == (number, True)
        assert not (await other.send(message(RUN, "new"))).duplicate

    _play(story)


def test_a_message_that_cannot_be_read_hides_no_other() -> None:
    async def story(world: World, first: ObjectStore, bucket: Counted, other: ObjectStore) -> None:
        world.data.put(layout.inbox_key(RUN, MANY), b"\x00")
        receipt = await other.send(message(RUN, "id 3"))
        assert (receipt.number, receipt.duplicate) == (3, True)

    _play(story)
