"""The write-ahead log of a busy store: made long at once, so that commits need not make it longer one by one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from buoy.stores.sqlite import store as sqlite_module
from buoy.stores.sqlite.schema import CACHE_KIB, CHECKPOINT_PAGES
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts.harness import StoreHarness, claimed
from tests.stores.test_sqlite import RUN, play, sql

LONG = CHECKPOINT_PAGES * 4096


def log_bytes(place: Path) -> int:
    return (place / "runs.db-wal").stat().st_size


def pages(store: SqliteStore) -> int:
    found: int = store._writer._connection.execute("PRAGMA page_count").fetchone()[0]
    return found


@pytest.fixture(autouse=True)
def _soon_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "BUSY_WRITES", 3)


def test_a_process_that_writes_little_leaves_the_log_short(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        await author.append(store, claimed("r1"))
        assert log_bytes(tmp_path) < LONG / 10

    play(tmp_path, test)


def test_a_busy_process_makes_the_log_long_once_and_the_file_no_larger(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        before = pages(store)
        for number in range(5):
            await author.append(store, claimed(f"r{number}"))
        assert LONG <= log_bytes(tmp_path) < 1.3 * LONG
        assert pages(store) == before
        assert await store.events(RUN) == author.log
        assert sql(tmp_path, "PRAGMA integrity_check") == [("ok",)]
        assert sql(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'lengthened'") == []
        (cache,) = store._writer._connection.execute("PRAGMA cache_size").fetchone()
        assert cache == -CACHE_KIB

    play(tmp_path, test)


def test_what_was_committed_after_it_is_there_for_the_next_process(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        for number in range(5):
            await author.append(store, claimed(f"r{number}"))
        # A copy of the files is what a power cut leaves.
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("runs.db", "runs.db-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
        assert sql(copy, "SELECT count(*) FROM log") == [(6,)]
        assert sql(copy, "PRAGMA integrity_check") == [("ok",)]

    play(tmp_path, test)


def test_a_log_that_another_process_has_made_long_is_left_alone(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        other = await harness.open()
        first = await harness.author(RUN).create(store)
        second = await harness.author("run-2").create(other)
        for number in range(4):
            await first.append(store, claimed(f"r{number}"))
        long = log_bytes(tmp_path)
        for number in range(4):
            await second.append(other, claimed(f"r{number}"))
        assert log_bytes(tmp_path) == long

    play(tmp_path, test)


@pytest.mark.parametrize("trouble", ["a full disk", "another writer"])
def test_what_keeps_the_log_short_keeps_no_commit_back(trouble: str, tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        connection = store._writer._connection
        if trouble == "a full disk":
            connection.execute(f"PRAGMA max_page_count = {pages(store)}")
            lock = None
        else:
            lock = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
            lock.execute("BEGIN IMMEDIATE")
        await store._writer.preallocate_wal()
        if lock is not None:
            lock.execute("ROLLBACK")
            lock.close()
        assert not connection.in_transaction
        assert log_bytes(tmp_path) < LONG
        await author.append(store, claimed("r1"))
        assert await store.events(RUN) == author.log

    play(tmp_path, test)
