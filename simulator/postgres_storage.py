"""The PostgreSQL store's own statements on a real server, inline: a transaction is one indivisible moment.

The server keeps the simulated time: each statement brings the kernel's time with it. The server's work is real, and the
story does not depend on how long it takes.
Invariant: a seed plays in a schema of its own, which is made at its start, so that it plays the same way each time.
"""

from __future__ import annotations

import os
from typing import TypeVar, cast

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
from buoy.stores.postgres import logs
from buoy.stores.postgres.address import Address, address_of
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.hints import Notifier
from buoy.stores.postgres.lanes import ReadLane, Work, WriteLane
from buoy.stores.postgres.opening import Opened, connect, open_database
from buoy.stores.postgres.read_groups import ReadMany, only
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.postgres_clock import timed_session, use_test_clock
from simulator.faults import Gate
from simulator.storage import commit_at, dated_earlier, name_of

T = TypeVar("T")
K = TypeVar("K")


class PostgresStorage:
    """One schema of a server that the first seed of this process starts."""

    def __init__(self, own_clock: Clock) -> None:
        url = _server_url()
        self._address = address_of(url)
        self._drop(self._address)
        use_test_clock(url)
        self._opened = open_database(self._address, timed_session(own_clock))
        self._connection = connect(self._address, self._opened.sql, timed_session(own_clock))

    def open(self, gate: Gate, clock: Clock) -> Store:
        return cast(Store, _InlinePostgres(self._opened, self._connection, gate, clock))

    def log(self, run_id: RunId, after: int = 0) -> list[Event]:
        return logs.log_of(self._connection, run_id, after)

    def inbox(self, run_id: RunId) -> list[Message]:
        return logs.inbox_of(self._connection, run_id)

    def holds(self, run_id: RunId, first_seq: int, nonce: str | None) -> bool:
        query = """SELECT l.nonce FROM {schema}.runs r JOIN {schema}.log l ON l.run = r.number
            WHERE r.run_id = %s AND l.first_seq = %s"""
        return (nonce,) in self._rows(query, (run_id, first_seq))

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
        self._run("UPDATE {schema}.runs SET doc = %s WHERE run_id = %s", (data, run_id))
        return how

    def erase(self, run_id: RunId, first_seq: int | None = None) -> None:
        found = self._rows("SELECT number FROM {schema}.runs WHERE run_id = %s", (run_id,))
        for (number,) in found:
            if first_seq is not None:
                self._run("DELETE FROM {schema}.log WHERE run = %s AND first_seq = %s", (number, first_seq))
                continue
            self._run("DELETE FROM {schema}.log WHERE run = %s", (number,))
            self._run("DELETE FROM {schema}.tasks WHERE run = %s", (number,))
            self._run("DELETE FROM {schema}.runs WHERE number = %s", (number,))

    def falsify(self, run_id: RunId, first_seq: int) -> None:
        change = """UPDATE {schema}.log SET body = %s
            WHERE first_seq = %s AND run = (SELECT number FROM {schema}.runs WHERE run_id = %s)"""
        commit = commit_at(self.log(run_id), first_seq)
        if commit:
            self._run(change, (encode_events(dated_earlier(commit)), first_seq, run_id))

    def close(self) -> None:
        self._connection.close()
        self._drop(self._address)

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        return self._connection.raw.execute(self._filled(query), values).fetchall()

    def _run(self, query: str, values: tuple[object, ...]) -> None:
        self._connection.raw.execute(self._filled(query), values)

    def _filled(self, query: str) -> bytes:
        return query.replace("{schema}", self._address.quoted).encode()

    @staticmethod
    def _drop(address: Address) -> None:
        session = connect(address, {})
        try:
            session.raw.execute(f"DROP SCHEMA IF EXISTS {address.quoted} CASCADE".encode())
        finally:
            session.close()


def _server_url() -> str:
    """A schema of this process. Processes that play side by side have a server each."""
    from tests.postgres_server import server

    return server().url(f"sim_{os.getpid()}")


class _InlinePostgres(PostgresStore):
    """The store without its threads. All of them share one session."""

    def __init__(self, opened: Opened, connection: Connection, gate: Gate, clock: Clock) -> None:
        # The parent's lanes and its listener have threads, but make none before they are used.
        super().__init__(opened, clock)
        self._writer = _InlineWrites(connection, gate)
        self._reader = _InlineReads(connection, gate)
        self._feed = ChangeFeed(lambda: 0)
        self._notifier = _Silent(self._reader, opened.address.channel)
        self._gate = gate

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Told by this process only: the simulator has hints of its own."""
        return await self._feed.wait(timeout_s)

    async def reopen(self) -> PostgresStore:
        return self

    async def close(self) -> None:
        """Nothing: the session is everyone's."""


class _Silent(Notifier):
    def notify(self) -> None:
        """Nothing: the simulator has hints of its own."""


class _InlineReads(ReadLane):
    def __init__(self, connection: Connection, gate: Gate) -> None:
        self._shared = connection
        self._gate = gate

    async def read(self, query: Work[T]) -> T:
        what = f"read {name_of(query)}"
        await self._gate.before(what)
        found = query(self._shared)
        await self._gate.after(what)
        return found

    async def read_one(self, many: ReadMany[K, T], key: K) -> T:
        """Alone: which reads wait at the same time would depend on how long the server takes."""
        what = f"read {name_of(many)}"
        await self._gate.before(what)
        found = only(many(self._shared, [key]))
        await self._gate.after(what)
        return found


class _InlineWrites(WriteLane):
    def __init__(self, connection: Connection, gate: Gate) -> None:
        self._shared = connection
        self._gate = gate

    async def write(self, work: Work[T]) -> T:
        what = f"write {name_of(work)}"
        await self._gate.before(what)
        result = work(self._shared)
        await self._gate.after(what)
        return result
