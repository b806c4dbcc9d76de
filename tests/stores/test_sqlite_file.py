"""The file of the SQLite store: who may read it, its schema, what is refused, and the URLs that name it."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from buoy.core.ids import RunId
from buoy.errors import BadInput, StoreUnusable
from buoy.stores import open_store
from buoy.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, prepare
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import StoreHarness, claimed, started

from .test_sqlite import play, sql

RUN = RunId("run-1")


def opening(path: Path) -> None:
    async def main() -> None:
        await (await SqliteStore.open(path, clock=ManualClock())).close()

    asyncio.run(main())


def test_the_files_are_private(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await harness.author(RUN).create(store)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600, "runs.db-runners": 0o700}
        assert store.lock_dir == tmp_path / "runs.db-runners"

    play(tmp_path, test)


def test_every_commit_is_synced(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        connection = store._writer._connection
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)

    play(tmp_path, test)


def test_operators_can_ask_for_single_events(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        author = await harness.author(RUN).create(store)
        await author.append(store, claimed("r1"), started(1))
        rows = sql(tmp_path, "SELECT run_id, seq, type, at, branch FROM events ORDER BY seq")
        now = harness.clock.now()
        assert rows == [
            (RUN, 1, "workflow_created", now, 0),
            (RUN, 2, "claimed", now, 0),
            (RUN, 3, "step_started", now, 0),
        ]

    play(tmp_path, test)


def test_a_file_is_migrated_from_every_older_schema(tmp_path: Path) -> None:
    for version in range(len(MIGRATIONS)):
        path = tmp_path / f"{version}.db"
        connection = sqlite3.connect(path)
        for statements in MIGRATIONS[:version]:
            for statement in statements:
                connection.execute(statement)
        if version:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
        connection.close()
        opening(path)
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        connection.close()


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            opening(tmp_path / "runs.db")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sql(tmp_path, "SELECT count(*) FROM meta") == [(1,)]


class _Overtaken(sqlite3.Connection):
    """A connection before whose statement number `at` another one makes the file a store."""

    at: int
    path: Path

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        self.at -= 1
        if self.at == 0:
            quicker = sqlite3.connect(self.path, isolation_level=None)
            prepare(quicker, self.path, time.sleep)
            quicker.close()
        return super().execute(sql, *given)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_file_that_becomes_a_store_while_it_is_opened_is_no_stranger(at: int, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    connection = sqlite3.connect(path, isolation_level=None, factory=_Overtaken)
    connection.at, connection.path = at, path
    prepare(connection, path, time.sleep)
    connection.close()
    assert sql(tmp_path, "SELECT count(*) FROM meta") == [(1,)]


def test_a_newer_schema_is_refused_unchanged(tmp_path: Path) -> None:
    opening(tmp_path / "runs.db")
    sql(tmp_path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreUnusable, match="a newer Buoy wrote it; upgrade"):
        opening(tmp_path / "runs.db")
    assert sql(tmp_path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]


def test_a_file_that_is_no_database_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("shopping list\n" * 100)
    with pytest.raises(StoreUnusable, match=r"notes\.db is not an SQLite database"):
        opening(path)
    assert path.read_text() == "shopping list\n" * 100


def test_a_database_of_something_else_is_refused_unchanged(tmp_path: Path) -> None:
    sql(tmp_path, "CREATE TABLE orders (id)")
    with pytest.raises(StoreUnusable, match="of something else"):
        opening(tmp_path / "runs.db")
    assert sql(tmp_path, "SELECT name FROM sqlite_master") == [("orders",)]
    assert sql(tmp_path, "PRAGMA journal_mode") == [("delete",)]


def test_a_database_of_something_else_with_the_same_mark_is_refused_unchanged(tmp_path: Path) -> None:
    sql(tmp_path, "CREATE TABLE orders (id)")
    for version in (0, 1, len(MIGRATIONS)):
        sql(tmp_path, f"PRAGMA application_id = {APPLICATION_ID}")
        sql(tmp_path, f"PRAGMA user_version = {version}")
        before = (tmp_path / "runs.db").read_bytes()
        with pytest.raises(StoreUnusable, match="of something else"):
            opening(tmp_path / "runs.db")
        assert (tmp_path / "runs.db").read_bytes() == before
        assert sql(tmp_path, "PRAGMA journal_mode") == [("delete",)]


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="correct the path"):
        opening(tmp_path / "file" / "runs.db")
    with pytest.raises(StoreUnusable):
        opening(tmp_path)


def test_a_file_that_became_read_only_says_so(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        # What SQLite answers on a read-only file, also to root.
        store._writer._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreUnusable, match=r"runs\.db cannot be written; give this user write permission"):
            await harness.author(RUN).create(store)
        store._writer._connection.execute("PRAGMA query_only = 0")
        await harness.author(RUN).create(store)

    play(tmp_path, test)


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
def test_a_url_or_a_path_opens_the_store(tmp_path: Path, form: str) -> None:
    async def main() -> None:
        path = tmp_path / "sub" / "runs.db"
        store = await open_store(form.format(path), ManualClock())
        assert isinstance(store, SqliteStore)
        assert store.name == f"sqlite:///{path}"
        assert store.single_host
        await store.close()

    asyncio.run(main())


def test_a_relative_url_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        await (await open_store("sqlite:///here.db", ManualClock())).close()

    asyncio.run(main())
    assert (tmp_path / "here.db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://key:secret@bucket/prefix", "carries credentials"),
        ("s3:///prefix", "names no bucket"),
        ("http://", "names no host"),
        ("ftp://host", "no store for 'ftp'"),
        ("runs.txt", "neither a URL nor a path"),
        ("sqlite://", "names no path"),
        ("sqlite:///", "names no path"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        asyncio.run(open_store(url, ManualClock()))
