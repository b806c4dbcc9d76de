"""A writer that is refused reads back first: its own first sending may stand there, or no object at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from buoy.core.schedule.schedule import Schedule
from buoy.errors import Unavailable
from buoy.ports.maintenance import Tombstone
from buoy.ports.records import Released, Wants
from buoy.stores.objects.bucket import Changed, Exists
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.harness import message, register

from .object_world import R1, RUN, World, end_run


class SentTwice(MemoryBucket):
    """Takes a conditional write in and refuses its second sending, as behind a proxy that repeats requests."""

    part = ""
    refused = 0

    async def create(self, key: str, data: bytes) -> str:
        etag = await super().create(key, data)
        if self._strikes(key):
            raise Exists(key)
        return etag

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        etag = await super().replace(key, data, etag)
        if self._strikes(key):
            raise Changed(key)
        return etag

    def _strikes(self, key: str) -> bool:
        strikes = bool(self.part) and self.part in key
        self.refused += strikes
        return strikes


class Conflicting(MemoryBucket):
    """Refuses to create a log's objects, though nothing is there."""

    part = ""

    async def create(self, key: str, data: bytes) -> str:
        if self.part and self.part in key:
            raise Exists(key)
        return await super().create(key, data)


def _play(story: Callable[[World, SentTwice, ObjectStore], Awaitable[None]]) -> None:
    async def play() -> None:
        world = World(None)
        bucket = SentTwice(world.data)
        store = await ObjectStore.on(bucket, clock=world.clock)
        await register(store, R1)
        await store.commit([world.author.first()])
        await story(world, bucket, store)

    asyncio.run(play())


def test_a_claim_whose_second_sending_is_refused_is_a_claim() -> None:
    async def story(world: World, bucket: SentTwice, store: ObjectStore) -> None:
        bucket.part = "state.json"
        assert [task.run_id for task in await store.claim_tasks(R1, Wants(), 5)] == [RUN]
        assert bucket.refused == 1
        assert await store.release(RUN, R1, Released(due_at=world.clock.now(), now=world.clock.now()))
        assert [task.run_id for task in await store.claim_tasks(R1, Wants(), 5)] == [RUN]
        assert bucket.refused == 3

    _play(story)


def test_a_message_whose_second_sending_is_refused_is_no_duplicate() -> None:
    async def story(world: World, bucket: SentTwice, store: ObjectStore) -> None:
        bucket.part = "/inbox/"
        receipt = await store.send(message(RUN, "go"))
        assert (receipt.number, receipt.duplicate, bucket.refused) == (1, False, 1)
        assert (await store.send(message(RUN, "go"))).duplicate

    _play(story)


def test_a_schedule_whose_second_sending_is_refused_is_saved() -> None:
    async def story(world: World, bucket: SentTwice, store: ObjectStore) -> None:
        bucket.part = "schedules/"
        first = Schedule(
            name="nightly", workflow="report", input=msgspec.Raw(b"null"), every_s=60, created_at=0.0, settled_at=0.0,
            number=1,
        )  # fmt: skip
        later = msgspec.structs.replace(first, number=2, fired=1)
        for saved in (first, later):
            assert await store.schedules.save_schedule(saved)
            assert not await store.schedules.save_schedule(saved)
        assert bucket.refused == 2

    _play(story)


def test_a_purge_that_meets_a_conflict_over_a_free_place_is_unclear() -> None:
    async def play() -> None:
        world = World(None)
        bucket = Conflicting(world.data)
        store = await ObjectStore.on(bucket, clock=world.clock)
        await register(store, R1)
        await store.commit([world.author.first()])
        assert await store.claim_tasks(R1, Wants(), 5)
        await end_run(world, store, RUN)
        record = await store.run(RUN)
        assert record is not None
        found = record.document
        tombstone = Tombstone(RUN, found.workflow, found.status, found.head_seq, found.created_at, 1.0, 2.0)
        bucket.part = f"{RUN}/log/"
        with pytest.raises(Unavailable, match="nothing is there"):
            await store.archive.purge(tombstone)
        bucket.part = ""
        assert await store.archive.purge(tombstone)

    asyncio.run(play())
