"""Stops a process (SIGSTOP) at a moment when it holds no lock that others of its store need.

A process that is stopped in the middle of a write keeps its lock: SQLite's write lock, a folder's lock file, or rows
in PostgreSQL. Then every other process waits until it is continued. That is as it should be, but it is
seldom what a test is about. So `freeze` looks whether a writer gets through, and otherwise lets the process run on.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from buoy.stores.postgres.address import address_of
from tests.patience import LOOK_S, PATIENCE_S, wait_until

# How long a writer waits for the others, which are at work.
_TRY_S = 0.5
_BUSY = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'buoy' AND xact_start IS NOT NULL"


def freeze(pid: int, url: str) -> None:
    """Stops it outside of a write to that store. The caller continues it (SIGCONT) or kills it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _stopped(pid), f"process {pid} to stop")
        if can_write(url):
            return
        os.kill(pid, signal.SIGCONT)
        assert time.monotonic() < deadline, f"process {pid} always had the lock of {url}"
        time.sleep(LOOK_S)


@contextmanager
def frozen(pid: int, url: str) -> Iterator[None]:
    """Inside of this block it stands still, without a lock of that store."""
    freeze(pid, url)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def can_write(url: str) -> bool:
    """Whether a writer gets through at once. A bucket has no locks."""
    if url.startswith("sqlite:"):
        return _sqlite_is_free(_path_of(url))
    if url.startswith("file:"):
        return _folder_is_free(_path_of(url))
    return not url.startswith("postgres") or _server_is_free(url)


def _path_of(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _stopped(pid: int) -> bool:
    """Whether all its threads stand still: one that runs on could still take a lock."""
    states = [_state(each) for each in Path(f"/proc/{pid}/task").iterdir()]
    return all(state in ("T", None) for state in states)


def _state(task: Path) -> str | None:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None  # the thread has ended


def _sqlite_is_free(path: Path) -> bool:
    if not path.exists():
        return True
    with closing(sqlite3.connect(path, timeout=_TRY_S, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


def _folder_is_free(folder: Path) -> bool:
    return all(_within(_TRY_S, lambda lock=lock: _flock_is_free(lock)) for lock in (folder / ".locks").glob("*"))  # type: ignore[misc]


def _flock_is_free(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _server_is_free(url: str) -> bool:
    """Whether there is a moment without a transaction of any process."""
    with psycopg.connect(address_of(url).conninfo, autocommit=True, application_name="freeze") as session:
        return _within(_TRY_S, lambda: session.execute(_BUSY).fetchone() == (0,))


def _within(span_s: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + span_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True
