"""Reads that wait at the same time share a statement, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import msgspec
import psycopg
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.errors import CorruptLog, NotWritten
from buoy.host.clock import SystemClock
from buoy.ports.records import Held
from buoy.stores.postgres.connection import Connection, Values
from buoy.stores.postgres.read_groups import GROUP_MAX
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.contracts.harness import StoreHarness, message, register
from tests.core.logbook import claimed, completed, started
from tests.engine.harness import plant, store_at
from tests.patience import PATIENCE_S
from tests.postgres_server import fresh_url, query, server
from tests.stores.test_postgres import play


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each statement was sent, by any session of this process."""
    found: Counter[str] = Counter()
    run = Connection.run

    def counted(self: Connection, name: str, values: Values = ()) -> psycopg.Cursor[tuple[object, ...]]:
        found[name] += 1
        return run(self, name, values)

    monkeypatch.setattr(Connection, "run", counted)
    yield found


def test_reads_of_one_kind_that_wait_together_are_one_statement(asked: Counter[str]) -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        ids = [RunId(f"run-{number}") for number in range(GROUP_MAX)]
        for run_id in ids[:3]:
            await harness.author(run_id).create(store)
        await store.send(message("run-1", "hello"))
        asked.clear()
        logs = await asyncio.gather(*(store.events(run_id) for run_id in ids))
        records = await asyncio.gather(*(store.run(run_id) for run_id in ids))
        inboxes = await asyncio.gather(*(store.inbox(run_id) for run_id in ids))
        assert {name: asked[name] for name in ("logs", "runs", "inboxes")} == {"logs": 1, "runs": 1, "inboxes": 1}
        assert [len(log) for log in logs] == [1, 1, 1] + [0] * (GROUP_MAX - 3)
        found = [None if each is None else each.document.run_id for each in records]
        assert found == [*ids[:3], *[None] * (GROUP_MAX - 3)]
        assert [[each.dedupe for each in inbox] for inbox in inboxes[:3]] == [[], ["hello"], []]

    play(test)


def test_each_part_of_a_log_has_its_own_beginning_and_its_own_length() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        author = await harness.author("run").create(store, Held(runner))
        await author.append(store, claimed("r1"), started("a#1"))
        await author.append(store, completed("a#1"))
        parts = [(0, None), (0, 1), (1, 1), (2, None), (3, 5), (4, None), (0, 3)]
        found = await asyncio.gather(*(store.events(RunId("run"), after, limit) for after, limit in parts))
        assert [[event.seq for event in part] for part in found] == [
            *([1, 2, 3, 4], [1], [2], [3, 4], [4], [], [1, 2, 3]),
        ]

    play(test)


def test_a_log_that_cannot_be_read_hides_no_other() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        for name in ("good", "torn", "whole"):
            await harness.author(name).create(store)
        url = server().url(store._opened.address.schema)
        query(
            url, "UPDATE {schema}.log SET body = 'x' WHERE run = (SELECT number FROM {schema}.runs WHERE run_id='torn')"
        )
        found = await asyncio.gather(
            *(store.events(RunId(name)) for name in ("good", "torn", "whole")), return_exceptions=True
        )
        assert isinstance(found[1], CorruptLog) and "torn" in str(found[1])
        assert [len(log) for log in (found[0], found[2]) if isinstance(log, list)] == [1, 1]

    play(test)


def test_a_caller_that_gives_up_takes_nothing_from_the_others() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        await harness.author("run").create(store)
        reads = [asyncio.create_task(store.events(RunId("run"))) for _ in range(3)]
        await asyncio.sleep(0)
        reads[1].cancel()
        found = await asyncio.gather(*reads, return_exceptions=True)
        assert [type(each) for each in found] == [list, asyncio.CancelledError, list]

    play(test)


def test_a_lost_store_tells_every_caller_and_the_next_read_gets_an_answer() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        await harness.author("run").create(store)
        connect = store._connect

        def refused() -> Connection:
            raise psycopg.OperationalError("the server refuses")

        await store._reader.close()
        store._reader = type(store._reader)(refused, store._silence, "refused")
        found = await asyncio.gather(*(store.events(RunId("run")) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [NotWritten] * 3
        store._reader._connect = connect
        assert len(await store.events(RunId("run"))) == 1

    play(test)


def test_reads_on_two_event_loops_do_not_wait_for_each_other() -> None:
    async def opened() -> PostgresStore:
        store = await PostgresStore.open(url, clock=SystemClock())
        async with store_at(url) as other:
            await plant(
                other, "run", [e.Event(1, 100.0, e.WorkflowCreated(workflow="works", input=msgspec.Raw(b"{}")))]
            )
        return store

    async def left_behind() -> None:
        asyncio.create_task(store.events(RunId("run")))  # noqa: RUF006 - its loop ends before it
        await asyncio.sleep(0)

    async def read_and_close() -> int:
        async with asyncio.timeout(PATIENCE_S):
            found = len(await store.events(RunId("run")))
            await store.close()
        return found

    url = fresh_url()
    store = asyncio.run(opened())
    asyncio.run(left_behind())
    assert asyncio.run(read_and_close()) == 1


# ---- takeover

LOST_RUNS = 96


@buoy.step
async def work() -> str:
    return "done"


@buoy.workflow
async def works() -> str:
    return await work()


def test_a_takeover_of_many_runs_takes_few_statements(asked: Counter[str]) -> None:
    url = fresh_url()
    ids = [f"run-{number}" for number in range(LOST_RUNS)]
    log = [
        e.Event(1, 100.0, e.WorkflowCreated(workflow="works", input=msgspec.Raw(b"{}"))),
        e.Event(2, 100.0, claimed("dead")),
        e.Event(3, 100.0, started("work#1")),
    ]

    async def test() -> None:
        async with store_at(url) as store:
            for run_id in ids:
                await plant(store, run_id, log, cause="taken_over")
        asked.clear()
        async with asyncio.timeout(PATIENCE_S), buoy.open(url, workflows=[works]) as app:
            runs = await asyncio.gather(*map(app.get, ids))
            assert await asyncio.gather(*(run.result() for run in runs)) == ["done"] * LOST_RUNS

    asyncio.run(test())
    assert asked.total() < LOST_RUNS, asked
