"""The contract of the change feed: a hint, so only what every store must tell is asked of it."""

from __future__ import annotations

import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.errors import BadInput
from buoy.ports.records import Ended, Held, Released
from buoy.ports.store import Store
from buoy.testing.contracts.harness import Contract, StoreHarness, claimed, completed, register, started, with_harness


async def moved_since(store: Store, cursor: str, limit: int = 1_000) -> tuple[set[str], str]:
    """All that the feed has after that place."""
    found = set[str]()
    while True:
        runs, later = await store.moved(cursor, limit)
        if later == cursor:
            return found, cursor
        found.update(runs)
        cursor = later


class MoveContract(Contract):
    @with_harness
    async def test_runs_that_others_create_and_end_are_told(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        await harness.author("old").create(store, Released(due_at=None, now=0.0))
        runs, cursor = await other.moved()
        assert runs == [], "it begins now"
        author = await harness.author("new").create(store, Held(runner))
        found, cursor = await moved_since(other, cursor)
        assert found == {"new"}
        assert await moved_since(other, cursor) == (set(), cursor)
        await author.append(store, claimed("r1"), started(1), task=Released(due_at=None, now=harness.clock.now()))
        found, cursor = await moved_since(other, cursor)
        assert found == {"new"}
        await author.append(store, e.WorkflowCompleted(), task=Ended())
        found, cursor = await moved_since(other, cursor)
        assert found == {"new"}

    @with_harness
    async def test_whoever_writes_is_told_of_every_commit(self, harness: StoreHarness) -> None:
        store = await harness.open()
        author = await harness.author("run").create(store, Held(await register(store, "r1")))
        _, cursor = await store.moved()
        for number in range(3):
            await author.append(store, started(number), completed(number))
            found, cursor = await moved_since(store, cursor)
            assert found == {"run"}

    @with_harness
    async def test_a_feed_comes_in_parts(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        _, cursor = await other.moved()
        for number in range(7):
            await harness.author(f"run-{number}").create(store, Released(due_at=None, now=0.0))
        runs, later = await other.moved(cursor, 2)
        assert 0 < len(runs) <= 2 and later != cursor
        found, _ = await moved_since(other, cursor, 2)
        assert found == {f"run-{number}" for number in range(7)}

    @with_harness
    async def test_two_readers_have_each_their_own_place(self, harness: StoreHarness) -> None:
        store = await harness.open()
        _, early = await store.moved()
        await harness.author("one").create(store)
        _, late = await store.moved(early)
        await harness.author("two").create(store)
        assert (await moved_since(store, early))[0] == {"one", "two"}
        assert (await moved_since(store, late))[0] == {"two"}

    @with_harness
    async def test_a_cursor_from_elsewhere_begins_now_and_one_that_is_none_is_refused(
        self, harness: StoreHarness
    ) -> None:
        store = await harness.open()
        await harness.author("one").create(store)
        runs, cursor = await store.moved("999999999")
        assert runs == []
        await harness.author("two").create(store)
        assert RunId("two") in (await store.moved(cursor))[0]
        for wrong in ("", "x", "-1", "1.5", "9" * 40):
            with pytest.raises(BadInput, match="cursor"):
                await store.moved(wrong)
