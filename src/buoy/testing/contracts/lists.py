"""The contract of lists: every run exactly once, newest first, while other processes write."""

from __future__ import annotations

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.times import StoreTime
from buoy.ports.records import Ended, Held, RunQuery, RunRecord
from buoy.ports.store import Store
from buoy.testing.contracts.harness import Contract, StoreHarness, claimed, message, register, with_harness

ALL = RunQuery()


async def names(store: Store, query: RunQuery = ALL) -> list[str]:
    """All pages of a query, small ones."""
    return [record.document.run_id for record in await listed(store, query, 3)]


async def listed(store: Store, query: RunQuery, limit: int) -> list[RunRecord]:
    page = await store.find_runs(query, limit=limit)
    found = list(page.runs)
    while page.cursor is not None:
        page = await store.find_runs(query, page.cursor, limit=limit)
        found += page.runs
    return found


class ListContract(Contract):
    @with_harness
    async def test_pages_hold_every_run_once_while_others_are_created(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        for number in range(25):
            harness.clock.advance(1.0)
            await harness.author(f"run-{number:02}").create(store)
        seen: list[str] = []
        page = await other.find_runs(ALL, limit=4)
        while True:
            assert len(page.runs) <= 4
            seen += [record.document.run_id for record in page.runs]
            if page.cursor is None:
                break
            harness.clock.advance(1.0)
            await harness.author(f"new-{len(seen)}").create(store)
            page = await other.find_runs(ALL, page.cursor, limit=4)
        assert len(seen) == len(set(seen))
        old = [run_id for run_id in seen if run_id.startswith("run-")]
        assert old == [f"run-{number:02}" for number in reversed(range(25))]

    @with_harness
    async def test_a_page_that_just_fits_is_the_last(self, harness: StoreHarness) -> None:
        store = await harness.open()
        for number in range(4):
            harness.clock.advance(1.0)
            await harness.author(f"run-{number}").create(store)
        page = await store.find_runs(ALL, limit=4)
        assert (len(page.runs), page.cursor) == (4, None)
        assert len(await listed(store, ALL, 1)) == 4

    @with_harness
    async def test_a_listed_run_is_the_run(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author("run-1").create(store, Held(await register(store, "r1")))
        (record,) = (await store.find_runs(ALL)).runs
        assert record == await store.run(RunId("run-1"))

    @with_harness
    async def test_runs_are_found_by_status_workflow_and_holder(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        for number in range(12):
            harness.clock.advance(1.0)
            kind = ("pending", "running", "completed", "failed")[number % 4]
            author = harness.author(f"{kind}-{number // 4}", workflow="even" if number // 4 % 2 == 0 else "odd")
            await author.create(store, Held(runner) if kind == "running" else None)
            if kind != "pending":
                await author.append(store, claimed("r1"))
            if kind == "completed":
                await author.append(store, e.WorkflowCompleted(), task=Ended())
            if kind == "failed":
                error = e.ErrorInfo(type="E", message="no")
                await author.append(store, e.WorkflowFailed(error=error), task=Ended())
        assert await names(store, RunQuery(statuses=("failed",))) == ["failed-2", "failed-1", "failed-0"]
        assert await names(store, RunQuery(statuses=("pending",))) == ["pending-2", "pending-1", "pending-0"]
        mixed = await names(store, RunQuery(statuses=("running", "completed")))
        assert mixed == ["completed-2", "running-2", "completed-1", "running-1", "completed-0", "running-0"]
        assert await names(store, RunQuery(workflow="odd")) == ["failed-1", "completed-1", "running-1", "pending-1"]
        assert await names(store, RunQuery(statuses=("failed",), workflow="odd")) == ["failed-1"]
        assert await names(store, RunQuery(holder=runner)) == ["running-2", "running-1", "running-0"]
        assert await names(store, RunQuery(holder=runner, workflow="odd", statuses=("running",))) == ["running-1"]
        assert await names(store, RunQuery(statuses=("paused",))) == []
        assert len(await names(store)) == 12

    @with_harness
    async def test_runs_are_found_by_parent_text_and_time(self, harness: StoreHarness) -> None:
        store = await harness.open()
        begun = harness.clock.now()
        for number in range(8):
            parent = e.Parent(RunId("run-00"), LeafId("child#1")) if number in (3, 5) else None
            author = await harness.author(f"run-{number:02}", parent=parent).create(store)
            if number == 6:
                await author.append(store, claimed("r1"))
            harness.clock.advance(10.0)
        assert await names(store, RunQuery(parent=RunId("run-00"))) == ["run-05", "run-03"]
        assert await names(store, RunQuery(parent=RunId("run-00"), statuses=("pending",))) == ["run-05", "run-03"]
        assert await names(store, RunQuery(parent=RunId("run-01"))) == []
        assert await names(store, RunQuery(text="n-03")) == ["run-03"]
        assert await names(store, RunQuery(text="%")) == []
        assert await names(store, RunQuery(created_from=begun + 60.0)) == ["run-07", "run-06"]
        assert await names(store, RunQuery(created_before=begun + 20.0)) == ["run-01", "run-00"]
        window = RunQuery(created_from=begun + 30.0, created_before=begun + 60.0, text="0")
        assert await names(store, window) == ["run-05", "run-04", "run-03"]
        assert await names(store, RunQuery(statuses=("pending",), created_from=begun + 50.0)) == ["run-07", "run-05"]
        await (await harness.reader_of(store, "run-00")).append(store, claimed("r1"))
        assert await names(store, RunQuery(updated_before=StoreTime(begun + 25.0))) == ["run-02", "run-01"]

    @with_harness
    async def test_ids_are_found_by_how_they_begin(self, harness: StoreHarness) -> None:
        store = await harness.open()
        made = ("lamp", "lamp-1", "lamp.child-9", "lamp0", "desk-1", "desk-2", "desk-3")
        for name in made:
            author = await harness.author(name).create(store)
            await author.append(store, claimed("r1"))
            await store.send(message(name, "d"))
        assert sorted(await store.run_ids("lamp", 10)) == ["lamp", "lamp-1", "lamp.child-9", "lamp0"]
        assert await store.run_ids("lamp", 1) == ["lamp"], "the very id comes first"
        assert await store.run_ids("lamp-", 10) == ["lamp-1"]
        assert await store.run_ids("lamp.", 10) == ["lamp.child-9"]
        assert len(await store.run_ids("desk", 2)) == 2
        assert await store.run_ids("desk-4", 10) == []
        assert await store.run_ids("%", 10) == []
