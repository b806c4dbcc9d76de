"""Segments: a long log is read by few requests, and nothing ever depends on a segment."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

import msgspec
import pytest

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.errors import Unavailable
from buoy.ports.records import Committed, Held, Write
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.segments import SEGMENT_COMMITS, segment_key, segment_of
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import Author, register

RUN = RunId("long")
COMMITS = 20_000
GETS_MAX = 350


class World:
    """A long log, and the requests to it."""

    def __init__(self) -> None:
        self.data, self.clock, self.counts = MemoryData(), ManualClock(), Counter[str]()
        self.events: list[e.Event] = []
        self.document: Document | None = None
        self.fails: str | None = None

    async def _count(self, operation: str, key: str, phase: str) -> None:
        self.counts[operation] += phase == "before"
        if self.fails is not None and operation == "get" and "/seg/" in key:
            raise Unavailable("no answer")

    def store(self) -> ObjectStore:
        return ObjectStore(MemoryBucket(self.data, self._count), self.clock)

    async def begin(self, store: ObjectStore) -> None:
        runner = await register(store, "owner")
        author = await Author(RUN, self.clock, count(1), {}).create(store, Held(runner))
        self.events = list(author.log)
        self.document = author.first().document

    async def append(self, store: ObjectStore, number: int) -> None:
        """Commits of two events each."""
        assert self.document is not None
        for _ in range(number):
            after = len(self.events)
            bodies = (
                e.StepStarted(leaf=LeafId(f"a#{after}"), name="a", args=msgspec.Raw(b"[]")),
                e.StepCompleted(leaf=LeafId(f"a#{after}"), result=msgspec.Raw(b"1")),
            )
            events = tuple(
                e.Event(seq=after + place, at=self.clock.now(), body=body, nonce=f"n{after}" if place == 1 else None)
                for place, body in enumerate(bodies, 1)
            )
            document = msgspec.structs.replace(self.document, head_seq=after + 2)
            assert await store.commit([Write(RUN, after, events, document)]) == [Committed(after + 2)]
            self.events += events

    def segments(self) -> list[tuple[int, int]]:
        return [span for key in self.data.keys if (span := segment_of(key, RUN)) is not None]


def _played(commits: int) -> World:
    async def play() -> World:
        world = World()
        store = world.store()
        await world.begin(store)
        await world.append(store, commits)
        world.counts.clear()
        return world

    return asyncio.run(play())


def test_a_log_of_20_000_commits_is_read_by_350_reads() -> None:
    world = _played(COMMITS)
    assert asyncio.run(world.store().events(RUN)) == world.events
    assert world.counts["get"] <= GETS_MAX
    # The log itself is listed, a request for each thousand commits, and the segments once.
    assert world.counts["list"] == 2
    assert len(world.segments()) == COMMITS // SEGMENT_COMMITS


@pytest.fixture(scope="module")
def long_log() -> MemoryData:
    return _played(3 * SEGMENT_COMMITS + 100).data


def _again(data: MemoryData) -> World:
    """The same log, to be spoilt."""
    world = World()
    for key, (body, _) in data.objects.items():
        world.data.put(key, body)
    return world


@pytest.mark.parametrize("how", ["garbage", "missing", "short", "shifted"])
def test_a_segment_that_is_wrong_is_passed_over(long_log: MemoryData, how: str) -> None:
    world = _again(long_log)
    whole = asyncio.run(_again(long_log).store().events(RUN))
    first, last = world.segments()[1]
    key = segment_key(RUN, first, last)
    body, _ = world.data.objects[key]
    if how == "garbage":
        world.data.put(key, b"\x00")
    elif how == "missing":
        world.data.remove(key)
    elif how == "short":
        world.data.put(key, msgspec.json.encode(msgspec.json.decode(body, type=list[msgspec.Raw])[:-1]))
    else:
        world.data.remove(key)
        world.data.put(segment_key(RUN, first + 1, last - 1), body)
    assert asyncio.run(world.store().events(RUN)) == whole
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))


def test_a_segment_that_gives_no_answer_is_not_taken_for_a_missing_one(long_log: MemoryData) -> None:
    world = _again(long_log)
    world.fails = "get"
    with pytest.raises(Unavailable):
        asyncio.run(world.store().events(RUN))


@pytest.mark.parametrize("after", [0, 1, 300, 512, 513, 1_700])
@pytest.mark.parametrize("limit", [None, 1, 700])
def test_a_part_of_a_long_log_is_the_same_with_segments(long_log: MemoryData, after: int, limit: int | None) -> None:
    world = _again(long_log)
    whole = asyncio.run(world.store().events(RUN))
    end = None if limit is None else after + limit
    assert asyncio.run(world.store().events(RUN, after, limit)) == whole[after:end]


def test_the_next_owner_writes_the_segments_of_a_log_that_has_none(long_log: MemoryData) -> None:
    async def test() -> None:
        world = _again(long_log)
        for first, last in world.segments():
            world.data.remove(segment_key(RUN, first, last))
        store = world.store()
        world.events = await store.events(RUN)
        record = await store.run(RUN)
        assert record is not None
        world.document = record.document
        await world.append(store, 3)
        assert len(world.segments()) == 3, "one with each commit, so that none takes long"
        reader = world.store()
        world.counts.clear()
        assert await reader.events(RUN) == world.events
        assert world.counts["get"] <= 3 + 110

    asyncio.run(test())


def test_a_log_that_another_owner_continues_has_no_segment_over_the_gap() -> None:
    async def test() -> None:
        world = World()
        one, other = world.store(), world.store()
        await world.begin(one)
        for store in (one, other, one, other):
            await world.append(store, SEGMENT_COMMITS - 50)
        assert world.segments() == []
        assert await world.store().events(RUN) == world.events

    asyncio.run(test())
