"""Storage: the data that the simulated processes share, under the real stores.

Each process has a store of its own on it, with a gate before and after every call. `log` and `inbox` read the truth at
once, past all gates: only checks may use them. `damage` spoils a run's document, which is no more than a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.codec import encode_events
from buoy.core.log.document import document
from buoy.core.log.events import Event
from buoy.core.log.state import fold
from buoy.ports.host import Clock
from buoy.ports.records import Message
from buoy.ports.store import Store
from buoy.stores.change_feed import ChangeFeed
from buoy.stores.sqlite import runs
from buoy.stores.sqlite.lanes import ReadLane, Row, Work, WriteLane
from buoy.stores.sqlite.schema import MIGRATIONS, Connection, connect
from buoy.stores.sqlite.store import SqliteStore
from simulator.faults import Gate

T = TypeVar("T")


class Storage(Protocol):
    """One kind of shared data."""

    def open(self, gate: Gate, clock: Clock) -> Store: ...

    def log(self, run_id: RunId, after: int = 0) -> list[Event]: ...

    def inbox(self, run_id: RunId) -> list[Message]: ...

    def holds(self, run_id: RunId, first_seq: int, nonce: str | None) -> bool:
        """Whether the commit with that nonce begins at that number."""
        ...

    def damage(self, run_id: RunId, luck: float) -> str | None:
        """Makes the document of a run unreadable, old or absent. How, in words; None if it has none."""
        ...

    def erase(self, run_id: RunId, first_seq: int | None = None) -> None:
        """For mutants: deletes a run, or only the commit that begins at that number."""
        ...

    def falsify(self, run_id: RunId, first_seq: int) -> None:
        """For mutants: gives the events of the commit that begins at that number another time."""
        ...

    def close(self) -> None: ...


class SqliteStorage:
    """The SQLite store's own statements, on one database in memory. A transaction is one indivisible moment."""

    def __init__(self, own_clock: Clock | None = None) -> None:
        self._own_clock = own_clock
        self._connection = connect(":memory:")
        for statements in MIGRATIONS:
            for statement in statements:
                self._connection.execute(statement)

    def open(self, gate: Gate, clock: Clock) -> Store:
        return cast(Store, _InlineSqlite(self._connection, gate, clock, self._own_clock))

    def log(self, run_id: RunId, after: int = 0) -> list[Event]:
        return runs.whole_log(self._connection, run_id, after, None)

    def inbox(self, run_id: RunId) -> list[Message]:
        return runs.messages(self._connection, run_id, 0, None)

    def holds(self, run_id: RunId, first_seq: int, nonce: str | None) -> bool:
        query = "SELECT l.nonce FROM runs r JOIN log l ON l.run = r.number WHERE r.run_id = ? AND l.first_seq = ?"
        return (nonce,) in self._connection.execute(query, (run_id, first_seq)).fetchall()

    def damage(self, run_id: RunId, luck: float) -> str | None:
        log = self.log(run_id)
        if not log:
            return None
        if luck < 0.5:
            how, data = "garbage", b"\x00not a document"
        else:
            ends = [event.seq - 1 for event in log if event.nonce is not None and event.seq > 1] or [len(log)]
            old = ends[int(luck * 100) % len(ends)]
            how, data = f"as of event {old}", msgspec.json.encode(document(fold(run_id, log[:old])))
        self._connection.execute("UPDATE runs SET doc = ? WHERE run_id = ?", (data, run_id))
        return how

    def erase(self, run_id: RunId, first_seq: int | None = None) -> None:
        number = self._connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if number is None:
            return
        if first_seq is not None:
            self._connection.execute("DELETE FROM log WHERE run = ? AND first_seq = ?", (*number, first_seq))
            return
        for statement in ("DELETE FROM log WHERE run = ?", "DELETE FROM tasks WHERE run = ?"):
            self._connection.execute(statement, number)
        self._connection.execute("DELETE FROM runs WHERE number = ?", number)

    def falsify(self, run_id: RunId, first_seq: int) -> None:
        change = """UPDATE log SET body = ?
            WHERE first_seq = ? AND run = (SELECT number FROM runs WHERE run_id = ?)"""
        commit = commit_at(self.log(run_id), first_seq)
        if commit:
            self._connection.execute(change, (encode_events(dated_earlier(commit)), first_seq, run_id))

    def close(self) -> None:
        self._connection.close()


def commit_at(log: list[Event], first_seq: int) -> list[Event]:
    """The events of one commit: from its nonce to the next."""
    rest = [event for event in log if event.seq >= first_seq]
    return [*rest[:1], *takewhile(lambda event: event.nonce is None, rest[1:])]


def dated_earlier(events: list[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, at=event.at - 1.0) for event in events]


class _InlineSqlite(SqliteStore):
    """The store without its threads and its file."""

    def __init__(self, connection: Connection, gate: Gate, clock: Clock, own_clock: Clock | None) -> None:
        # The parent's lanes have threads, but make none before they are used.
        super().__init__(Path("simulated.db"), clock, connection, connection, own_clock=own_clock)
        self._writer = _InlineWrites(connection, gate)
        self._reader = _InlineReads(connection, gate)
        self._watch = ChangeFeed(lambda: 0)


class _InlineReads(ReadLane):
    def __init__(self, connection: Connection, gate: Gate) -> None:
        self._shared = connection
        self._gate = gate

    async def read(self, query: Work[T], *, quick: bool = False) -> T:
        what = f"read {name_of(query)}"
        await self._gate.before(what)
        found = query(self._shared)
        await self._gate.after(what)
        return found

    async def close(self) -> None:
        """Nothing: all processes share the connection."""


class _InlineWrites(WriteLane):
    def __init__(self, connection: Connection, gate: Gate) -> None:
        self._shared = connection
        self._gate = gate

    async def write(self, work: Work[T], *, small: bool = True) -> T:
        what = f"write {name_of(work)}"
        await self._gate.before(what)
        self._shared.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._shared)
        except BaseException:
            self._shared.execute("ROLLBACK")
            raise
        self._shared.execute("COMMIT")
        await self._gate.after(what)
        return result

    def write_now(self, work: Work[T]) -> None:
        """Never: whatever is written passes the gate."""

    def go_on_now(self, values: Row) -> None:
        """Never, as well."""

    async def preallocate_wal(self) -> None:
        """Nothing: there is no file."""

    async def settings(self) -> tuple[str, int]:
        """As those of a file would be: what is in memory has no write-ahead log."""
        return "wal", 2

    async def close(self) -> None:
        """Nothing: all processes share the connection."""


def name_of(work: Callable[..., object]) -> str:
    """What a transaction is about: the function that made it."""
    parts = work.__qualname__.split(".<locals>")
    return parts[0].rpartition(".")[2].removesuffix("_work")
