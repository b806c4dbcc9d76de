"""Opening an SQLite store: a private file that is made if it is not there, and two connections to it.

Invariants: a file that is there is never opened but by SQLite: closing it would drop the locks that this process holds
on it. Where this user may not write, the store is opened for reading only, and only if what is read is all that
was committed: a write-ahead log that cannot be read is no reason to show an older state.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from buoy.errors import StoreUnusable
from buoy.stores.file_identity import FileIdentity
from buoy.stores.sqlite.errors import may_not_write, translated
from buoy.stores.sqlite.schema import READER_CACHE_KIB, Connection, check_current, connect, connect_durably, prepare


class Opened(NamedTuple):
    writer: Connection
    reader: Connection
    read_only: bool = False
    # None where this process cannot write: then nothing is acknowledged either.
    identity: FileIdentity | None = None


def open_file(path: Path, lock_dir: Path) -> Opened:
    """The connections that write and read."""
    try:
        return _open(path, lock_dir)
    except sqlite3.Error as error:
        if may_not_write(error) and path.is_file():
            return _open_for_reading(path, error)
        if path.is_dir():
            raise StoreUnusable(
                f"{path} is a folder, and a store of SQLite is a file; name a file, or write file://{path.absolute()}"
            ) from error
        raise translated(error, path) from error
    except OSError as error:
        raise StoreUnusable(
            f"{path} cannot be used as a store: {error}; correct the path or its permissions"
        ) from error


def _open(path: Path, lock_dir: Path) -> Opened:
    _make_private_file(path)
    with ExitStack() as opened:
        writer = opened.enter_context(closing(connect_durably(path)))
        prepare(writer, path, threading.Event().wait)
        # The writing lane waits for locks by itself, in shorter steps.
        writer.execute("PRAGMA busy_timeout = 0")
        reader = opened.enter_context(closing(connect_durably(path)))
        reader.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        reader.execute("PRAGMA query_only = 1")
        # SQLite opens the write-ahead log with the first read, and keeps it and its index as long as it is open.
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        identity = FileIdentity(path, (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))))
        lock_dir.mkdir(mode=0o700, exist_ok=True)
        opened.pop_all()
        return Opened(writer, reader, identity=identity)


def _open_for_reading(path: Path, why: sqlite3.Error) -> Opened:
    try:
        with ExitStack() as opened:
            writer = opened.enter_context(closing(_connect_for_reading(path)))
            reader = opened.enter_context(closing(_connect_for_reading(path)))
            check_current(reader, path)
            opened.pop_all()
            return Opened(writer, reader, read_only=True)
    except sqlite3.Error as error:
        raise translated(why, path) from error


def _connect_for_reading(path: Path) -> Connection:
    """Opens for reading. Other processes may write if SQLite can see it; if not, the write-ahead log must be empty."""
    connection = _reading(path, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection
    except sqlite3.Error as error:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if not may_not_write(error) or (log.exists() and log.stat().st_size):
            raise
    return _reading(path, "immutable=1")


def _reading(path: Path, how: str) -> Connection:
    return connect(f"{path.as_uri()}?{how}", uri=True)


def _make_private_file(path: Path) -> None:
    """An empty file that only this user can read, unless there is one. The other files of SQLite copy its permissions.

    Never opens a file that is there: closing it would drop the locks that this process holds on it through SQLite.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    made = Path(name)
    try:
        path.hardlink_to(made)
    except FileExistsError:
        # Another process was quicker; its file is as good.
        return
    finally:
        made.unlink()
