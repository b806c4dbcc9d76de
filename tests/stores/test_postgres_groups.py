"""What a group of commits does to the tasks of its runs: it locks and writes those that change, and no others."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from buoy.core.ids import RunnerId
from buoy.ports.records import Committed, Ended, Held, Released, TaskChange
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.contracts.harness import Author, StoreHarness, claimed, message, register, started
from tests.patience import PATIENCE_S
from tests.postgres_server import query

from .test_postgres import play
from .test_postgres_collisions import url_of

TASKS = "SELECT run_id, holder, ctid::text FROM {schema}.tasks ORDER BY run_id"


async def held_runs(harness: StoreHarness, store: PostgresStore, count: int) -> list[Author]:
    """Runs that `r1` holds, each with a claim in its log."""
    runner = await register(store, "r1")
    authors = [harness.author(f"run-{number}") for number in range(count)]
    for author in authors:
        await author.create(store, Held(runner))
        await author.append(store, claimed("r1"))
    return authors


def test_a_group_does_not_wait_for_the_task_of_a_run_that_only_moves_on() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        moving, parked = await held_runs(harness, store, 2)
        writes = [moving.draft(started(1)), parked.draft(started(1), task=Released(due_at=None, now=0.0))]
        address = store._opened.address
        with psycopg.connect(address.conninfo) as other:
            statement = f"SELECT 1 FROM {address.quoted}.tasks WHERE run_id = %s FOR UPDATE"
            other.execute(statement.encode(), (moving.run_id,))
            async with asyncio.timeout(PATIENCE_S):
                assert await store.commit(writes) == [Committed(3)] * 2
            other.rollback()

    play(test)


def test_a_task_that_its_claimer_holds_is_not_written_again() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        authors = await held_runs(harness, store, 3)
        before = query(url_of(store), TASKS)
        drafts = [author.draft(started(1), task=Held(RunnerId("r1"))) for author in authors]
        assert await store.commit(drafts) == [Committed(3)] * 3
        assert query(url_of(store), TASKS) == before

    play(test)


@pytest.mark.parametrize("lost", [True, False], ids=["the task is lost", "another runner holds it"])
def test_a_group_holds_the_tasks_that_its_runner_does_not_hold_yet(*, lost: bool) -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        authors = await held_runs(harness, store, 3)
        change = "DELETE FROM {schema}.tasks" if lost else "UPDATE {schema}.tasks SET holder = 'r2'"
        query(url_of(store), f"{change} WHERE run_id = 'run-1'")
        await store.send(message("run-1", "d"))
        drafts = [author.draft(started(1), task=Held(RunnerId("r1"))) for author in authors]
        assert await store.commit(drafts) == [Committed(3)] * 3
        assert [row[1] for row in query(url_of(store), TASKS)] == ["r1"] * 3
        record = await store.run(authors[1].run_id)
        assert record is not None and record.inbox_head == 1
        assert record.envelope.generation == (2 if lost else 1)

    play(test)


def test_a_group_changes_the_task_of_each_run_in_its_own_way() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        authors = await held_runs(harness, store, 6)
        changes: list[TaskChange | None] = [
            Ended(),
            Held(RunnerId("r1")),
            Held(RunnerId("r2")),
            Released(due_at=None, now=0.0),
            None,
            Ended(),
        ]
        drafts = [author.draft(started(1), task=change) for author, change in zip(authors, changes, strict=True)]
        newborn = harness.author("run-9").first(Held(RunnerId("r1")))
        # Fenced, so that its task stays.
        query(url_of(store), "UPDATE {schema}.runs SET head_seq = 7 WHERE run_id = 'run-5'")
        outcomes = await store.commit([*drafts, newborn])
        assert [type(each).__name__ for each in outcomes] == ["Committed"] * 5 + ["FencedOut", "Committed"]
        holders = {run_id: holder for run_id, holder, _ in query(url_of(store), TASKS)}
        assert holders == {"run-1": "r1", "run-2": "r2", "run-3": None, "run-4": "r1", "run-5": "r1", "run-9": "r1"}

    play(test)
