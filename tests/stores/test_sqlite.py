"""What only the SQLite store can show: its file, its schema, its locks, and real processes that die."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from buoy.core.ids import BranchId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.errors import BadInput, CorruptLog, StoreUnusable, Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Beat, Committed, Ended, FencedOut, Held, Released, RunQuery
from buoy.stores.sqlite import lanes as sqlite_lanes
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts.archive import stone_of
from buoy.testing.contracts.harness import (
    ANY,
    Author,
    Contract,
    StoreHarness,
    claim,
    claimed,
    committed,
    message,
    register,
    started,
)
from tests.patience import PATIENCE_S

RUN = RunId("run-1")


class Sqlite(Contract):
    async def open(self, place: Path, clock: Clock) -> SqliteStore:
        return await SqliteStore.open(place / "runs.db", clock=clock)


def play(place: Path, test: Callable[[StoreHarness, SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = StoreHarness(Sqlite(), place)
        try:
            store = await harness.open()
            assert isinstance(store, SqliteStore)
            await test(harness, store)
        finally:
            await harness.close()

    asyncio.run(main())


def sql(place: Path, statement: str) -> list[tuple[object, ...]]:
    """As an operator would ask."""
    connection = sqlite3.connect(place / "runs.db", timeout=0.0)
    try:
        with connection:
            return connection.execute(statement).fetchall()
    finally:
        connection.close()


# Trouble while it runs.


def test_a_full_disk_rolls_back_and_the_store_goes_on_once_there_is_room(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        other = await harness.author("run-2").create(store)
        connection = store._writer._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        large = e.StepStarted(leaf=started(1).leaf, name="charge", args=msgspec.Raw(b'"' + b"x" * 100_000 + b'"'))
        with pytest.raises(StoreUnusable, match="the disk is full; nothing was written; free some space"):
            await store.commit([other.draft(claimed("r1")), author.draft(claimed("r1"), large)])
        assert len(await store.events(RUN)) == len(await store.events(other.run_id)) == 1
        assert not connection.in_transaction
        connection.execute("PRAGMA max_page_count = 1073741823")
        await author.append(store, claimed("r1"), large)
        assert await store.events(RUN) == author.log

    play(tmp_path, test)


def test_a_lock_that_another_connection_keeps_is_waited_for(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        lock = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        commit = asyncio.create_task(committed(store, harness.author(RUN).first()))
        # The loop stays free during that time, and reads continue.
        for _ in range(20):
            assert await store.run(RUN) is None
            await asyncio.sleep(0)
        assert not commit.done()
        lock.execute("ROLLBACK")
        lock.close()
        assert await commit == Committed(1)

    play(tmp_path, test)


def test_a_lock_kept_for_too_long_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_lanes, "BUSY_TIMEOUT_S", 0.02)

    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        lock = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="is locked by another process"):
            await harness.author(RUN).create(store)
        lock.close()
        await harness.author(RUN).create(store)

    play(tmp_path, test)


def test_closing_ends_the_wait_for_a_lock(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        lock = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        commit = asyncio.create_task(committed(store, harness.author(RUN).first()))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(Unavailable, match="closed"):
            await commit
        lock.close()

    play(tmp_path, test)


def _own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("buoy-")}


def test_closing_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    earlier = _own_threads()  # of other tests, which end in their own time

    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        await store.commit([(await harness.author(f"run-{n}").create(store)).draft(claimed("r")) for n in range(2, 9)])
        await store.inbox(author.run_id)
        assert _own_threads() - earlier
        await store.close()
        await store.close()
        assert not _own_threads() - earlier
        open_files = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        assert not [name for name in open_files if str(tmp_path) in name]
        for call in (store.run(RUN), store.events(RUN), store.commit([author.draft(claimed("r"))]), store.now()):
            try:
                await call
            except Unavailable as error:
                assert "is closed" in str(error)

    play(tmp_path, test)


def test_a_damaged_log_is_told_and_left_alone(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await harness.author(RUN).create(store)
        sql(tmp_path, "UPDATE log SET body = CAST('[{\"seq\": 1' AS BLOB)")
        with pytest.raises(CorruptLog, match="the log of run-1"):
            await store.events(RUN)

    play(tmp_path, test)


# Its own ways.


def test_several_commits_of_one_run_in_one_call_follow_each_other(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = harness.author(RUN)
        drafts = []
        for bodies in ((), (claimed("r1"),), (started(1), started(2))):
            drafts.append(author.draft(*bodies) if bodies else author.first(Released(due_at=None, now=0.0)))
            author.accept(drafts[-1])
        stale = author.draft(started(9))
        assert await store.commit([*drafts, drafts[1], stale]) == [
            Committed(1),
            Committed(2),
            Committed(4),
            FencedOut(4),
            Committed(5),
        ]
        assert await store.events(RUN) == [*author.log, *stale.events]
        record = await store.run(RUN)
        assert record is not None and record.document == stale.document

    play(tmp_path, test)


def test_due_tasks_come_in_exact_order_and_keep_their_place_after_a_crash(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        dead, alive = await register(store, "dead"), await register(store, "alive")
        for number, delay_s in enumerate((0.3, 0.1, 0.2)):
            await harness.author(f"run-{number}").create(
                store, Released(due_at=harness.clock.now() + delay_s, now=harness.clock.now())
            )
        harness.clock.advance(1.0)
        assert await claim(store, dead, limit=1) == ["run-1"]
        await store.declare_dead(dead, "killed", cause="taken_over", evidence={})
        assert await claim(store, alive) == ["run-1", "run-2", "run-0"]

    play(tmp_path, test)


def test_a_run_that_lost_its_task_gets_a_new_one(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Held(runner))
        await store.send(message(RUN, "d"))
        sql(tmp_path, "DELETE FROM tasks")
        (orphan,) = await store.orphans(10)
        assert (orphan.run_id, orphan.holder, orphan.why) == (RUN, None, "it has no task")
        assert await store.requeue_orphan(orphan)
        assert not await store.requeue_orphan(orphan)
        (task,) = await store.claim_tasks(runner, ANY, 10)
        assert task.id == "run-1:orchestrate:2"
        record = await store.run(RUN)
        assert record is not None
        assert (record.envelope.generation, record.envelope.orchestrator_task_id) == (2, task.id)
        assert await store.unread_runs(runner) == [RUN]

    play(tmp_path, test)


def test_a_run_that_was_created_again_after_its_end_is_listed_as_active(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        await author.append(store, claimed("r1"), e.WorkflowCompleted())
        ended, active = RunQuery(statuses=("completed",)), RunQuery(statuses=("running",))
        assert (len((await store.find_runs(ended)).runs), len((await store.find_runs(active)).runs)) == (1, 0)
        branch = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=2, cause="restart")
        await author.append(store, claimed("r1"), branch)
        assert (len((await store.find_runs(ended)).runs), len((await store.find_runs(active)).runs)) == (0, 1)

    play(tmp_path, test)


def test_a_number_that_another_run_has_after_a_purge_leads_nobody_astray(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        other = await harness.open()
        await register(store, "r1")
        zombie = await harness.author(RUN).create(other, Held(RunnerId("r1")))
        await zombie.append(other, claimed("r1"))
        late = zombie.draft(started(1))
        await zombie.append(store, e.WorkflowCompleted(), task=Ended())
        assert await store.archive.purge(await stone_of(store))
        successor = await harness.author("successor").create(store)
        await successor.append(store, claimed("r1"))
        assert sql(tmp_path, "SELECT number, head_seq FROM runs WHERE run_id = 'successor'") == [(1, 2)], (
            "it has the number"
        )
        assert isinstance(await committed(other, late), FencedOut)
        assert len(await store.events(successor.run_id)) == 2

    play(tmp_path, test)


def test_a_strange_cursor_is_refused(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        with pytest.raises(BadInput, match="begin without a cursor"):
            await store.find_runs(RunQuery(), "'; DROP TABLE runs")

    play(tmp_path, test)


def _waits_again(store: SqliteStore) -> tuple[asyncio.Task[bool], asyncio.Event]:
    """A task that received all changes so far, and waits for the next. The event: it begins to wait."""
    ready = asyncio.Event()

    async def wait() -> bool:
        while await store.wait_for_change(0.0):
            pass
        ready.set()
        return await store.wait_for_change(PATIENCE_S)

    return asyncio.create_task(wait()), ready


def test_no_waiter_takes_the_hint_of_another_one(tmp_path: Path) -> None:
    """One task looks and then waits, in a task made for that wait. Another waiter gets the change in between."""

    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await harness.author(RUN).create(store)
        while await store.wait_for_change(0.0):
            pass
        await store.send(message(RUN, "d"))
        assert await store.wait_for_change(0.0)
        assert await asyncio.create_task(store.wait_for_change(0.0))

    play(tmp_path, test)


def test_what_another_process_writes_ends_the_wait_for_a_change(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        other = await harness.open()
        waiting, ready = _waits_again(store)
        await ready.wait()
        await asyncio.sleep(0)
        await harness.author(RUN).create(other)
        assert await waiting

    play(tmp_path, test)


def test_what_this_process_writes_ends_the_wait_for_a_change(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await harness.author(RUN).create(store)
        waits = [_waits_again(store) for _ in range(3)]
        for _, ready in waits:
            await ready.wait()
        await asyncio.sleep(0)
        await store.send(message(RUN, "d"))
        assert await asyncio.gather(*(waiting for waiting, _ in waits)) == [True, True, True]

    play(tmp_path, test)


def test_a_change_between_two_waits_is_told_and_told_once(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        other = await harness.open()
        await store.wait_for_change(0.0)
        await harness.author(RUN).create(other)
        assert await store.wait_for_change(0.0)
        assert not await store.wait_for_change(0.0)

    play(tmp_path, test)


def test_a_beat_of_this_process_is_no_change_for_it(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        runner = await register(store, "r1")
        await store.wait_for_change(0.0)
        for number in range(5):
            await store.beat(runner, Beat(number=number))
        assert not await store.wait_for_change(0.0)

    play(tmp_path, test)


def test_a_store_serves_the_loops_of_several_threads(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        runner = await register(store, "r1")
        alive: list[bool] = []

        def beat() -> None:
            async def beats() -> None:
                for number in range(50):
                    alive.append(await store.beat(runner, Beat(number=number)))

            asyncio.run(beats())

        thread = threading.Thread(target=beat)
        thread.start()
        author: Author = await harness.author(RUN).create(store)
        for number in range(50):
            await author.append(store, started(number))
            await asyncio.sleep(0)
        await asyncio.to_thread(thread.join)
        assert alive == [True] * 50
        assert await store.events(RUN) == author.log

    play(tmp_path, test)


def test_a_sweep_costs_what_is_active_however_much_has_ended(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        runner = await register(store, "r1")
        for number in range(50):
            await harness.author(f"run-{number}").create(store, Held(runner))
        before = await steps(store)
        sql(
            tmp_path,
            """WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            INSERT INTO runs SELECT i + 1000, 'old-' || i, 'order', 'completed', 1, 2, 1.0, 1.0, 1, NULL, NULL, NULL,
            (SELECT doc FROM runs WHERE number = 1) FROM n""",
        )
        assert await steps(store) <= before * 1.1

    async def steps(store: SqliteStore) -> int:
        """What SQLite does for the questions of a sweep, in hundreds of its own steps."""
        count = 0

        def more() -> int:
            nonlocal count
            count += 1
            return 0

        lanes = (store._reader._connection, store._writer._connection)
        for connection in lanes:
            connection.set_progress_handler(more, 100)
        for _ in range(10):
            await store.orphans(100)
            await store.claim_tasks(RunnerId("r1"), ANY, 100)
            await store.unread_runs(RunnerId("r1"))
            await store.runners()
            await store.declare_dead(RunnerId("ghost"), "gone", cause="taken_over", evidence={})
            await store.find_runs(RunQuery(statuses=("running", "waiting"), workflow="order"))
            await store.find_runs(RunQuery(holder=RunnerId("r1")))
            await store.find_runs(RunQuery(statuses=("failed",), workflow="order"))
        for connection in lanes:
            connection.set_progress_handler(None, 0)
        return count

    play(tmp_path, test)
