"""Stores where this user may not write: they can be looked at, and every change is refused in one line."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from buoy.core.ids import RunId
from buoy.errors import Problem, StoreUnusable
from buoy.host.clock import SystemClock
from buoy.ports.records import RunQuery
from buoy.ports.store import Store
from buoy.stores import open_store
from buoy.stores.sqlite.schema import MIGRATIONS, READABLE_FROM
from buoy.testing.contracts.harness import Author, register

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may pass through: pytest's own ones are private."""
    made = Path(tempfile.mkdtemp(prefix="buoy-read-only-"))
    made.chmod(0o755)
    yield made
    _set_modes(made, 0o755, 0o644)
    shutil.rmtree(made)


def _set_modes(folder: Path, of_folders: int, of_files: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(of_folders if path.is_dir() else of_files)


async def _fill(url: str) -> None:
    store = await open_store(url, SystemClock())
    await register(store, "r1")
    await Author(RunId("run-1"), SystemClock(), iter(range(1, 9)), {}).create(store)
    await store.close()


def as_another_user(work: Callable[[], Awaitable[str]]) -> str:
    """What a process says that may not write there. Root may write everywhere, so it first becomes another user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            told = asyncio.run(work())  # type: ignore[arg-type]
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


async def _looked_at(store: Store) -> str:
    record = await store.run(RunId("run-1"))
    listed = await store.find_runs(RunQuery())
    assert record is not None and [each.document.run_id for each in listed.runs] == ["run-1"]
    assert len(await store.events(RunId("run-1"))) == 1
    assert [each.info.id for each in await store.runners()] == ["r1"]
    return record.document.status


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_a_store_in_a_read_only_folder_can_be_looked_at(folder: Path, kind: str) -> None:
    url = f"sqlite:///{folder}/runs.db" if kind == "sqlite" else f"file://{folder}/runs"
    asyncio.run(_fill(url))
    _set_modes(folder, 0o555, 0o444)

    async def work() -> str:
        store = await open_store(url, SystemClock())
        status = await _looked_at(store)
        checks = {check.name: check.ok for check in await store.integrity.checks()}
        assert all(checks.values()), checks
        try:
            await register(store, "r2")
        except StoreUnusable as error:
            refused = str(error)
        await store.close()
        return f"{status}; {refused}"

    told = as_another_user(work)
    assert told.startswith("pending; "), told
    assert "permission" in told


def test_what_others_commit_meanwhile_is_seen_or_refused_but_never_missed(folder: Path) -> None:
    """A write-ahead log that holds commits and cannot be read must not be passed over in silence."""
    url = f"sqlite:///{folder}/runs.db"
    asyncio.run(_fill(url))
    connection = sqlite3.connect(folder / "runs.db", isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("UPDATE runs SET status = 'running'")
    log = folder / "runs.db-wal"
    assert log.stat().st_size
    kept = log.read_bytes()
    connection.close()
    log.write_bytes(kept)
    (folder / "runs.db-shm").unlink(missing_ok=True)
    _set_modes(folder, 0o555, 0o444)

    async def work() -> str:
        store = await open_store(url, SystemClock())
        return await _looked_at(store)

    told = as_another_user(work)
    assert told.startswith("StoreUnusable"), told


def test_an_older_schema_cannot_be_read_where_it_cannot_be_raised(folder: Path) -> None:
    path = folder / "runs.db"
    asyncio.run(_fill(f"sqlite:///{path}"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    _set_modes(folder, 0o555, 0o444)

    async def work() -> str:
        return (await open_store(f"sqlite:///{path}", SystemClock())).name

    told = as_another_user(work)
    assert told.startswith("StoreUnusable") and f"cannot be brought to {len(MIGRATIONS)}" in told


def test_a_schema_that_only_lacks_views_for_people_is_read_as_it_is(folder: Path) -> None:
    path = folder / "runs.db"
    asyncio.run(_fill(f"sqlite:///{path}"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP VIEW workflow_runs")
    connection.execute(f"PRAGMA user_version = {READABLE_FROM}")
    connection.close()
    _set_modes(folder, 0o555, 0o444)

    async def work() -> str:
        return await _looked_at(await open_store(f"sqlite:///{path}", SystemClock()))

    assert as_another_user(work) == "pending"


def test_a_file_that_cannot_be_read_is_told_in_one_line(folder: Path) -> None:
    path = folder / "runs.db"
    asyncio.run(_fill(f"sqlite:///{path}"))
    _set_modes(folder, 0o555, 0o000)

    async def work() -> str:
        try:
            return (await open_store(f"sqlite:///{path}", SystemClock())).name
        except Problem as error:
            return f"{type(error).__name__}: {error}"

    told = as_another_user(work)
    assert told.startswith("StoreUnusable") and "\n" not in told
