"""The commonest commit, the next append of one run: one statement, with the fence in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.ports.records import Committed, FencedOut, Held
from buoy.stores.sqlite.commit import going_on
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts.harness import Author, StoreHarness, claimed, committed, started
from tests.stores.test_sqlite import RUN, play, sql


async def driven(harness: StoreHarness, store: SqliteStore, run_id: RunId = RUN) -> Author:
    """A run that this store knows, because it has written of it before."""
    author = await harness.author(run_id).create(store)
    await author.append(store, claimed("r1"))
    return author


def statements(store: SqliteStore) -> list[str]:
    seen: list[str] = []
    store._writer._connection.set_trace_callback(lambda text: seen.append(text.split()[0]))
    return seen


def test_a_run_that_goes_on_needs_no_statements_around_its_own(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await driven(harness, store)
        seen = statements(store)
        await author.append(store, started(1))
        # What its trigger does is traced as well.
        assert seen[0] == "INSERT" and not {"BEGIN", "COMMIT", "SELECT"} & set(seen)
        assert await store.events(RUN) == author.log
        record = await store.run(RUN)
        assert record is not None and record.document.head_seq == len(author.log)

    play(tmp_path, test)


@pytest.mark.parametrize("how", ["behind", "ahead"])
def test_who_is_elsewhere_in_the_log_is_fenced_and_changes_nothing(how: str, tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await driven(harness, store)
        stale = author.draft(started(2))
        if how == "behind":
            await author.append(store, started(1))
        else:
            author.draft(started(1))
            sql(tmp_path, "UPDATE runs SET head_seq = head_seq - 1")
        before = sql(tmp_path, "SELECT * FROM runs"), sql(tmp_path, "SELECT * FROM log")
        outcome = await committed(store, stale)
        assert isinstance(outcome, FencedOut)
        assert (sql(tmp_path, "SELECT * FROM runs"), sql(tmp_path, "SELECT * FROM log")) == before

    play(tmp_path, test)


def test_a_number_that_belongs_to_another_run_by_now_is_not_believed(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        first = await driven(harness, store)
        second = await driven(harness, store, RunId("run-2"))
        store._numbers[RUN], store._numbers[second.run_id] = store._numbers[second.run_id], store._numbers[RUN]
        await first.append(store, started(1))
        await second.append(store, started(1))
        assert await store.events(RUN) == first.log
        assert await store.events(second.run_id) == second.log

    play(tmp_path, test)


def test_a_run_that_ends_or_changes_hands_is_another_kind_of_commit(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await driven(harness, store)
        assert going_on(author.draft(started(1)), store._numbers, store._clock) is not None
        assert going_on(author.draft(started(1), task=Held("r2")), store._numbers, store._clock) is None
        assert going_on(author.draft(started(1), seen=3), store._numbers, store._clock) is None
        assert going_on(author.draft(started(1)), {}, store._clock) is None
        # Ended without a word about its task: what the row says of it changes, so the fence does not fit.
        end = author.draft(e.WorkflowFailed(error=e.ErrorInfo("Broken", "it broke")))
        assert isinstance(await committed(store, end), Committed)
        assert sql(tmp_path, "SELECT ended FROM runs") == [(1,)]

    play(tmp_path, test)
