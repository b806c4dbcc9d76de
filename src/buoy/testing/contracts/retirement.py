"""The contract of retirement: what is kept of runners that are gone."""

from __future__ import annotations

import asyncio

from buoy.core.ids import RunId, RunnerId
from buoy.ports.records import Beat, Evidence, Held
from buoy.ports.store import Store
from buoy.testing.contracts.harness import Contract, StoreHarness, claim, register, with_harness

RUN = RunId("run-1")
PROOF: Evidence = {"proof": "lock free"}


async def gone(store: Store, harness: StoreHarness, *names: str) -> list[RunnerId]:
    """Runners of these names, which go one after the other."""
    runners = [await register(store, name) for name in names]
    for runner in runners:
        harness.clock.advance(1.0)
        await store.declare_dead(runner, "stopped", cause="interrupted", evidence=PROOF)
    return runners


async def listed(store: Store, number: int = 100) -> list[str]:
    return [record.info.id for record in await store.runners(gone=number)]


class RetirementContract(Contract):
    @with_harness
    async def test_of_the_gone_the_newest_are_listed_after_the_living(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await register(store, "alive")
        # By the time that they went, not by their names or their beginnings.
        await gone(store, harness, "c", "a", "d", "b")
        assert await listed(other, 2) == ["alive", "b", "d"]
        assert await listed(other, 4) == ["alive", "b", "d", "a", "c"]
        assert await listed(other, 0) == ["alive"]

    @with_harness
    async def test_retirement_keeps_the_living_and_the_newest(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        alive = await register(store, "alive")
        await gone(store, harness, *(f"g{number}" for number in range(7)))
        assert await other.retire(3, 100) == 4
        assert await listed(store) == ["alive", "g6", "g5", "g4"]
        assert (await other.retire(3, 100), await store.retire(3, 100)) == (0, 0)
        assert await store.beat(alive, Beat(number=1))

    @with_harness
    async def test_retirement_goes_on_from_a_limit(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await gone(store, harness, *(f"g{number}" for number in range(9)))
        removed = [await store.retire(2, 3) for _ in range(4)]
        assert (removed, await listed(store)) == ([3, 3, 1, 0], ["g8", "g7"])

    @with_harness
    async def test_who_holds_something_is_not_retired(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        (zombie,) = await gone(store, harness, "zombie")
        await gone(store, harness, "later")
        # It did not know that it is gone.
        await harness.author(RUN).create(store, Held(zombie))
        assert await other.retire(0, 100) == 1
        assert await listed(store) == ["zombie"]
        (orphan,) = await other.orphans(10)
        assert (orphan.run_id, orphan.holder) == (RUN, zombie)
        assert await other.requeue_orphan(orphan)
        assert await other.retire(0, 100) == 1
        assert await listed(store) == []
        assert await claim(other, await register(other, "next")) == [RUN]

    @with_harness
    async def test_a_retired_runner_stays_out(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        (zombie,) = await gone(store, harness, "zombie")
        assert await other.retire(0, 100) == 1
        assert not await store.beat(zombie, Beat(number=9))
        assert await claim(store, zombie) == []
        assert await store.suspect(zombie, 0) is None
        assert await store.declare_dead(zombie, "again", cause="taken_over", evidence=PROOF) == 0
        assert await listed(other) == []

    @with_harness
    async def test_of_many_retirements_at_once_each_record_is_removed(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(4)
        await register(stores[0], "alive")
        await gone(stores[0], harness, *(f"g{number}" for number in range(12)))
        await asyncio.gather(*(store.retire(2, 100) for store in stores))
        assert await listed(stores[1]) == ["alive", "g11", "g10"]
