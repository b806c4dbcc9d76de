"""The contract of schedules: of two who change a schedule one wins."""

from __future__ import annotations

import asyncio

import msgspec

from buoy.core.schedule.schedule import Schedule
from buoy.testing.contracts.harness import Contract, StoreHarness, with_harness


def schedule(name: str = "nightly", number: int = 1, **more: object) -> Schedule:
    made = Schedule(
        name=name, workflow="order", input=msgspec.Raw(b'{"n": 1}'), created_at=1.0, settled_at=1.0, number=number,
        cron="0 3 * * *",
    )  # fmt: skip
    return msgspec.structs.replace(made, **more)


class ScheduleContract(Contract):
    @with_harness
    async def test_a_schedule_is_read_back_the_same_by_everybody(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert await store.schedules.schedules() == []
        assert await store.schedules.save_schedule(schedule("b", zone="Europe/Berlin"))
        assert await store.schedules.save_schedule(schedule("a", removed_at=5.0))
        for each in (store, other, await harness.open()):
            found = await each.schedules.schedules()
            assert found == [schedule("a", removed_at=5.0), schedule("b", zone="Europe/Berlin")]

    @with_harness
    async def test_only_the_next_number_is_written(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert not await store.schedules.save_schedule(schedule(number=2))
        assert await store.schedules.save_schedule(schedule(number=1))
        assert not await other.schedules.save_schedule(schedule(number=1, fired=9))
        assert not await other.schedules.save_schedule(schedule(number=3))
        assert await other.schedules.save_schedule(schedule(number=2, fired=1))
        assert not await store.schedules.save_schedule(schedule(number=2, fired=2))
        assert await store.schedules.schedules() == [schedule(number=2, fired=1)]

    @with_harness
    async def test_of_many_who_change_a_schedule_one_wins(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(6)
        await stores[0].schedules.save_schedule(schedule())
        for number in range(2, 8):
            drafts = [schedule(number=number, fired=place) for place in range(len(stores))]
            won = await asyncio.gather(
                *(store.schedules.save_schedule(draft) for store, draft in zip(stores, drafts, strict=True))
            )
            assert sorted(won) == [False] * 5 + [True]
            assert await stores[0].schedules.schedules() == [drafts[won.index(True)]]
