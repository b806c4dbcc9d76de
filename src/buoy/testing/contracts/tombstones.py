"""The contract of tombstones: those of a store are listed whole, and one from elsewhere uses up its id."""

from __future__ import annotations

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.ports.maintenance import Tombstone
from buoy.ports.records import FencedOut, RunQuery
from buoy.testing.contracts.archive import copy_of, ended_run, stone_of
from buoy.testing.contracts.harness import Contract, StoreHarness, committed, with_harness

FOREIGN = Tombstone(RunId("elsewhere-1"), "order", "failed", 7, 900.0, 901.0, 902.0, by="me")


class TombstoneContract(Contract):
    @with_harness
    async def test_the_tombstones_of_purged_runs_are_listed_page_by_page(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        # One id begins another: their order differs from store to store.
        for name in ("run", "run-1", "run.child", "stays", "zero"):
            await ended_run(harness, store, RunId(name))
            if name != "stays":
                assert await store.archive.purge(await stone_of(store, RunId(name)))
        found: list[Tombstone] = []
        while page := await other.archive.tombstones(found[-1].run_id if found else None, 2):
            assert len(page) <= 2
            found += page
        assert sorted(each.run_id for each in found) == ["run", "run-1", "run.child", "zero"]
        assert all([await store.archive.tombstone(each.run_id) == each for each in found])

    @with_harness
    async def test_a_tombstone_from_elsewhere_uses_up_its_id(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert await store.archive.add_tombstone(FOREIGN)
        assert not await other.archive.add_tombstone(FOREIGN), "once is enough"
        assert await other.archive.tombstone(FOREIGN.run_id) == FOREIGN
        assert await other.archive.tombstones(None, 10) == [FOREIGN]
        assert (await other.find_runs(RunQuery())).runs == ()
        late = await committed(other, harness.author(FOREIGN.run_id).first())
        assert isinstance(late, FencedOut)
        assert await store.run(FOREIGN.run_id) is None

    @with_harness
    async def test_a_tombstone_from_elsewhere_touches_no_run(self, harness: StoreHarness) -> None:
        store = await harness.open()
        assert await store.archive.import_run(copy_of(e.Paused(reason="hold"), run_id=FOREIGN.run_id))
        assert not await store.archive.add_tombstone(FOREIGN)
        assert await store.run(FOREIGN.run_id) is not None
        assert await store.archive.tombstones(None, 10) == []
