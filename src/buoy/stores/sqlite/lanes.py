"""Lanes to the database: one connection, one lock and one thread each, for writing and for reading.

Invariants: a connection is used under its lock only. Work on the writing lane is one transaction that commits or rolls
back as a whole, and may be repeated when it met a lock. Work that is small and has lately been quick runs on the
caller's thread without suspending: with a thread switch for each commit a sequential step takes 2.8 times the processor
time, a run of one step 1.8 times (`benchmarks/speed_tricks.py`). All else runs on the lane's
thread. The event loop never waits for another process: a caller that meets a lock there moves to the thread.
A commit is answered only if the files still exist under their names. SQLite silently keeps writing into a file that was
removed or replaced, and all of that is lost.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.stores.file_identity import FileIdentity
from buoy.stores.sqlite.errors import busy, closed, translated
from buoy.stores.sqlite.schema import BUSY_TIMEOUT_S, CACHE_KIB, CHECKPOINT_PAGES, GO_ON, Connection

_LOG = logging.getLogger("buoy.stores")

T = TypeVar("T")
Work = Callable[[Connection], T]
Row: TypeAlias = tuple[str | int | float | bytes | bytearray | None, ...]

# Above this average the disk, not Python, is what takes the time: leave the event loop alone.
QUICK_S = 0.002
_AVERAGE_WEIGHT = 0.1
# Pauses between two tries for the lock. Much shorter than SQLite's own, which lets busy processes starve others.
_PAUSE_FIRST_S = 0.0005
_PAUSE_MAX_S = 0.01
# The files that hold what was committed, the database and its write-ahead log. Others are looked at by who waits.
_ACKNOWLEDGED = 2
# To make the write-ahead log longer: a cache so small that SQLite must write to the log what a transaction changes, and
# as much as a log holds between two checkpoints (and the last commit before one).
_SPILLING_PAGES = 20
_LONG_BYTES = (CHECKPOINT_PAGES + 200) * 4096


class Lane:
    """A connection, its lock and its thread."""

    def __init__(self, connection: Connection, path: Path, name: str, identity: FileIdentity | None = None) -> None:
        self._identity = identity
        self._connection = connection
        self._path = path
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def close(self) -> None:
        """Lets the work in hand end, then closes. Twice is once."""
        if self._closing.is_set():
            return
        self._closing.set()
        await asyncio.get_running_loop().run_in_executor(self._pool, self._close)
        self._pool.shutdown()

    def _close(self) -> None:
        with self._lock:
            self._connection.close()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise closed(self._path)


class ReadLane(Lane):
    """Reads never wait for writers, nor writers for them."""

    async def read(self, query: Work[T], *, quick: bool = False) -> T:
        """`quick`: a few rows found by an index, worth no thread switch."""
        self._check_open()
        if quick and self._lock.acquire(blocking=False):
            try:
                return self._run(query)
            finally:
                self._lock.release()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run_locked, query)

    def _run_locked(self, query: Work[T]) -> T:
        with self._lock:
            return self._run(query)

    def _run(self, query: Work[T]) -> T:
        try:
            found = query(self._connection)
            if self._identity is not None:
                # What was committed to a file that is gone must not be read back as recorded.
                self._identity.known()
            return found
        except sqlite3.Error as error:
            raise translated(error, self._path) from error


class WriteLane(Lane):
    """The only connection of this process that writes."""

    def __init__(
        self, connection: Connection, path: Path, name: str, clock: Clock, identity: FileIdentity | None = None
    ) -> None:
        super().__init__(connection, path, name, identity)
        self._clock = clock
        self._average_s = 0.0

    async def write(self, work: Work[T], *, small: bool = True) -> T:
        """Runs `work` in a transaction. When this returns, what it wrote is durable."""
        done = self.write_now(work) if small else None
        if done is not None:
            return done[0]
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._write_patiently, work)

    def write_now(self, work: Work[T]) -> tuple[T] | None:
        """The same without waiting, if the disk has been quick of late and no other process is writing."""
        self._check_open()
        if self._average_s >= QUICK_S or not self._lock.acquire(blocking=False):
            return None
        try:
            return (self._transact(work),)
        except sqlite3.Error as error:
            if busy(error):
                return None
            raise translated(error, self._path) from error
        finally:
            self._lock.release()

    def go_on_now(self, values: Row) -> bool | None:
        """The same for the commonest commit, a single statement. Whether it has changed anything; None: not done."""
        if self._closing.is_set():
            raise closed(self._path)
        if self._average_s >= QUICK_S or not self._lock.acquire(blocking=False):
            return None
        try:
            connection, monotonic = self._connection, self._clock.monotonic
            before, began = connection.total_changes, monotonic()
            connection.hand.execute(GO_ON, values)
            if self._identity is not None:
                # A call of the system costs 1 to 6 us: here the database alone. Its log is looked at by all else.
                self._identity.check(1)
            self._average_s += _AVERAGE_WEIGHT * (monotonic() - began - self._average_s)
            return connection.total_changes != before
        except sqlite3.Error as error:
            if busy(error):
                return None
            raise translated(error, self._path) from error
        finally:
            self._lock.release()

    async def preallocate_wal(self) -> None:
        """Makes the write-ahead log as long as it will be between two checkpoints. Durable or not: it holds nothing."""
        self._check_open()
        await asyncio.get_running_loop().run_in_executor(self._pool, self._lengthen)

    def data_version(self) -> int | None:
        """A number that changes when another connection has committed; None while this one is at work."""
        if self._closing.is_set() or not self._lock.acquire(blocking=False):
            return None
        try:
            found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            if self._identity is not None:
                self._identity.check()
            return found
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        finally:
            self._lock.release()

    async def settings(self) -> tuple[str, int]:
        """The journal mode and how much is synced, on the connection that commits."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._settings)

    def _settings(self) -> tuple[str, int]:
        with self._lock:
            try:
                mode = self._connection.execute("PRAGMA journal_mode").fetchone()[0]
                return mode, self._connection.execute("PRAGMA synchronous").fetchone()[0]
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

    def _lengthen(self) -> None:
        """A commit that makes the file longer syncs the file's length, too, which takes about as long again.

        By SQLite's own means: what does not fit into the cache goes to the log, and is void after the rollback.
        """
        with self._lock:
            connection = self._connection
            try:
                if self._path.with_name(f"{self._path.name}-wal").stat().st_size >= _LONG_BYTES:
                    return
                connection.execute(f"PRAGMA cache_size = {_SPILLING_PAGES}")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("CREATE TABLE lengthened (x)")
                connection.execute("INSERT INTO lengthened VALUES (zeroblob(?))", (_LONG_BYTES,))
            except (sqlite3.Error, OSError) as error:
                # Nothing depends on it: another process is at work, or a disk is full, and the next commit says so.
                _LOG.debug("the log of %s stays as short as it is: %s", self._path, error)
            finally:
                self._as_before()

    def _as_before(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _write_patiently(self, work: Work[T]) -> T:
        with self._lock:
            waited_s, pause_s = 0.0, _PAUSE_FIRST_S
            while True:
                try:
                    return self._transact(work)
                except sqlite3.Error as error:
                    if not busy(error) or waited_s >= BUSY_TIMEOUT_S:
                        raise translated(error, self._path) from error
                if self._closing.wait(pause_s):
                    raise Unavailable(f"{self._path} was closed before its lock was free; nothing was written")
                waited_s += pause_s
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    def _transact(self, work: Work[T]) -> T:
        connection = self._connection
        execute = connection.hand.execute
        began = self._clock.monotonic()
        try:
            execute("BEGIN IMMEDIATE")
            result = work(connection)
            execute("COMMIT")
        except BaseException as error:
            self._roll_back(error)
            raise
        if self._identity is not None:
            self._identity.check(_ACKNOWLEDGED)
        self._average_s += _AVERAGE_WEIGHT * (self._clock.monotonic() - began - self._average_s)
        return result

    def _roll_back(self, cause: BaseException) -> None:
        # SQLite has rolled back by itself after some errors (full disk, I/O).
        if not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            cause.add_note(f"and the transaction could not be rolled back: {error}")
