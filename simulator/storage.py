"""Storage: the data that the simulated processes share, under the real stores.

Each process has a store of its own on it, with a gate before and after every call. `log` and `inbox` read the truth at
once, past all gates: only checks may use them. `damage` spoils a run's document, which is no more than a cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.codec import decode_events, encode_events
from buoy.core.log.document import document
from buoy.core.log.events import Event
from buoy.core.log.state import fold
from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Message
from buoy.ports.store import Store
from buoy.stores.change_feed import ChangeFeed
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData, OnCall
from buoy.stores.objects.records import LogObject
from buoy.stores.objects.store import FORMAT, Marker, ObjectStore
from buoy.stores.sqlite import runs
from buoy.stores.sqlite.lanes import ReadLane, Row, Work, WriteLane
from buoy.stores.sqlite.schema import MIGRATIONS, Connection, connect
from buoy.stores.sqlite.store import SqliteStore
from simulator.faults import Gate

T = TypeVar("T")

_STATE = "/state.json"
# Comes after everything that a key can hold.
_LAST = "\uffff"


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

    def __init__(self) -> None:
        self._connection = connect(":memory:")
        for statements in MIGRATIONS:
            for statement in statements:
                self._connection.execute(statement)

    def open(self, gate: Gate, clock: Clock) -> Store:
        return cast(Store, _InlineSqlite(self._connection, gate, clock))

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
        commit = _commit_at(self.log(run_id), first_seq)
        if commit:
            self._connection.execute(change, (encode_events(_earlier(commit)), first_seq, run_id))

    def close(self) -> None:
        self._connection.close()


def _commit_at(log: list[Event], first_seq: int) -> list[Event]:
    """The events of one commit: from its nonce to the next."""
    rest = [event for event in log if event.seq >= first_seq]
    return [*rest[:1], *takewhile(lambda event: event.nonce is None, rest[1:])]


def _earlier(events: list[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, at=event.at - 1.0) for event in events]


class _InlineSqlite(SqliteStore):
    """The store without its threads and its file."""

    def __init__(self, connection: Connection, gate: Gate, clock: Clock) -> None:
        # The parent's lanes have threads, but make none before they are used.
        super().__init__(Path("simulated.db"), clock, connection, connection)
        self._writer = _InlineWrites(connection, gate)
        self._reader = _InlineReads(connection, gate)
        self._watch = ChangeFeed(lambda: 0)


class _InlineReads(ReadLane):
    def __init__(self, connection: Connection, gate: Gate) -> None:
        self._shared = connection
        self._gate = gate

    async def read(self, query: Work[T], *, quick: bool = False) -> T:
        what = f"read {_name(query)}"
        await self._gate.before(what)
        found = query(self._shared)
        await self._gate.after(what)
        return found

    async def close(self) -> None:
        """Nothing: the connection is everybody's."""


class _InlineWrites(WriteLane):
    def __init__(self, connection: Connection, gate: Gate) -> None:
        self._shared = connection
        self._gate = gate

    async def write(self, work: Work[T], *, small: bool = True) -> T:
        what = f"write {_name(work)}"
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
        """Nothing: the connection is everybody's."""


def _name(work: Work[T]) -> str:
    """What a transaction is about: the function that made it."""
    parts = work.__qualname__.split(".<locals>")
    return parts[0].rpartition(".")[2].removesuffix("_work")


class _Bucket(MemoryBucket):
    """A bucket whose writes may arrive after their sender gave them up: a request that timed out is not undone."""

    def __init__(self, data: MemoryData, on_call: OnCall, gate: Gate, *, metered: bool) -> None:
        super().__init__(data, on_call)
        self._gate = gate
        self._metered = metered

    def pulse(self) -> int | None:
        """None as S3 has it: what others did shows by the poke alone."""
        return None if self._metered else super().pulse()

    async def put(self, key: str, data: bytes) -> str:
        self._perhaps_late(f"put {key}", lambda: self.data.put(key, data), lambda: True)
        return await super().put(key, data)

    async def create(self, key: str, data: bytes) -> str:
        self._perhaps_late(f"create {key}", lambda: self.data.put(key, data), lambda: key not in self.data.objects)
        return await super().create(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        def same() -> bool:
            return self.data.objects.get(key, (b"", ""))[1] == etag

        self._perhaps_late(f"replace {key}", lambda: self.data.put(key, data), same)
        return await super().replace(key, data, etag)

    def _perhaps_late(self, what: str, write: Callable[[], object], allowed: Callable[[], bool]) -> None:
        late_s = self._gate.late_s(what)
        if late_s is None:
            return

        def arrive() -> None:
            if allowed():
                write()

        self._gate.kernel.at(self._gate.kernel.time + late_s, arrive)
        raise Unavailable(f"no answer to {what}")


class _Remembering(MemoryData):
    """Knows what documents were before."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, list[bytes]] = {}

    def put(self, key: str, data: bytes) -> str:
        if key.endswith(_STATE):
            self.before.setdefault(key, []).append(data)
        return super().put(key, data)


class ObjectStorage:
    """The object store over buckets in memory; each call to a bucket is one indivisible moment."""

    def __init__(self, *, single_host: bool) -> None:
        self._data = _Remembering()
        self._data.put(layout.MARKER, msgspec.json.encode(Marker(FORMAT)))
        self._one_host = single_host

    def open(self, gate: Gate, clock: Clock) -> Store:
        async def on_call(operation: str, key: str, phase: str) -> None:
            if phase == "before":
                await gate.before(f"{operation} {key}")
            else:
                await gate.after(f"{operation} {key}")

        bucket = _Bucket(self._data, on_call, gate, metered=not self._one_host)
        return cast(Store, ObjectStore(bucket, clock, single_host=self._one_host))

    def log(self, run_id: RunId, after: int = 0) -> list[Event]:
        found: list[Event] = []
        # Each object begins with the number in its key: what was seen before need not be read again.
        for key in self._keys(layout.log_prefix(run_id), layout.log_key(run_id, after + 1) if after else ""):
            stored = msgspec.json.decode(self._data.objects[key][0], type=LogObject)
            if stored.purged is not None:
                return []
            found += decode_events(stored.events, f"the log of {run_id}")
        return found

    def inbox(self, run_id: RunId) -> list[Message]:
        objects = self._data.objects
        keys = self._keys(layout.inbox_prefix(run_id))
        return [msgspec.json.decode(objects[key][0], type=Message) for key in keys]

    def holds(self, run_id: RunId, first_seq: int, nonce: str | None) -> bool:
        found = self._data.objects.get(layout.log_key(run_id, first_seq))
        return found is not None and msgspec.json.decode(found[0], type=LogObject).nonce == nonce

    def damage(self, run_id: RunId, luck: float) -> str | None:
        key = layout.state_key(run_id)
        if key not in self._data.objects:
            return None
        if luck < 0.3:
            self._data.remove(key)
            return "lost"
        if luck < 0.6:
            self._data.put(key, b"\x00not a document")
            return "garbage"
        before = self._data.before[key]
        self._data.put(key, before[int(luck * 100) % len(before)])
        return "an older one"

    def erase(self, run_id: RunId, first_seq: int | None = None) -> None:
        keys = [layout.log_key(run_id, first_seq)] if first_seq is not None else self._keys(layout.run_prefix(run_id))
        for key in keys:
            self._data.remove(key)

    def falsify(self, run_id: RunId, first_seq: int) -> None:
        key = layout.log_key(run_id, first_seq)
        commit = _commit_at(self.log(run_id), first_seq)
        if commit and key in self._data.objects:
            stored = msgspec.json.decode(self._data.objects[key][0], type=LogObject)
            events = msgspec.Raw(encode_events(_earlier(commit)))
            self._data.put(key, msgspec.json.encode(msgspec.structs.replace(stored, events=events)))

    def _keys(self, prefix: str, first: str = "") -> list[str]:
        """The keys that begin so, from `first` on."""
        keys = self._data.keys
        return keys[bisect_left(keys, max(prefix, first)) : bisect_left(keys, prefix + _LAST)]

    def close(self) -> None:
        """Nothing: it is memory."""
