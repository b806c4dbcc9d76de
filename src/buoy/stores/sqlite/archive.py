"""Archive in SQLite: whole runs brought in and removed, each in one transaction.

Invariants: a copy is there with all of its log, inbox and task, or not at all. A purge removes only a run that ended,
owes nothing and has not changed since the caller read it. Its tombstone appears in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from buoy.core.ids import RunId, orchestrate_task_id
from buoy.core.log.codec import encode_events
from buoy.core.log.document import Document
from buoy.core.log.events import Event
from buoy.errors import WrongState
from buoy.ports.maintenance import Remains, RunCopy, TaskFound, Tombstone
from buoy.stores.sqlite.commit import NEW_TASK, NO_EVIDENCE, TOMBSTONE, task_row
from buoy.stores.sqlite.lanes import ReadLane, Row, Work, WriteLane
from buoy.stores.sqlite.remains import purge_broken_work, remains
from buoy.stores.store_clock import StoreClock
from buoy.stores.unreadable import decoded

# Events in one row: few rows to write, and few events to decode for one that is asked for.
CHUNK_EVENTS = 256

_ENCODER = msgspec.json.Encoder()
_TOMBSTONES = msgspec.json.Decoder(Tombstone)

_THERE = "SELECT number FROM runs WHERE run_id = ?"
_CREATE = """INSERT INTO runs (run_id, workflow, status, ended, created_at, updated_at, parent_run, parent_leaf, doc,
    head_seq, generation, orchestrator_task_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_APPEND = "INSERT INTO log (run, first_seq, last_seq, nonce, body) VALUES (?, ?, ?, ?, ?)"
_SEND = "INSERT INTO inbox (run, number, dedupe, kind, by, sent_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ALL_SEEN = "UPDATE tasks SET seen = inbox_head, holder = ? WHERE run = ?"
_ENDS_AT = "SELECT number FROM runs r WHERE run_id = ? AND ? = (SELECT max(last_seq) FROM log WHERE run = r.number)"
_REWRITE = """UPDATE runs SET workflow = ?, status = ?, ended = ?, created_at = ?,
    updated_at = coalesce(?, updated_at), parent_run = ?,
    parent_leaf = ?, doc = ?, head_seq = ? WHERE number = ?"""
_RESORT = "UPDATE tasks SET workflow = ?, queue = ?, stack = ?, env = ? WHERE run = ?"
_OVER = """SELECT number FROM runs r WHERE run_id = ? AND ended = 1 AND head_seq = ?
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE run = r.number)"""
_DELETE_LOG = "DELETE FROM log WHERE run = ?"
_DELETE_INBOX = "DELETE FROM inbox WHERE run = ?"
_DELETE_RUN = "DELETE FROM runs WHERE number = ?"
_BURY = "INSERT INTO tombstones (run_id, head_seq, body) VALUES (?, ?, ?)"
_TOMB = "SELECT body FROM tombstones WHERE run_id = ?"
_TOMBS = "SELECT body, run_id FROM tombstones WHERE run_id > ? ORDER BY run_id LIMIT ?"
_BURY_FOREIGN = """INSERT INTO tombstones (run_id, head_seq, body) SELECT ?1, ?2, ?3
    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = ?1) ON CONFLICT DO NOTHING"""


class SqliteArchive:
    """The archive of one SQLite store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane, clock: StoreClock) -> None:
        self._clock = clock
        self._writer = writer
        self._reader = reader

    async def import_run(self, copy: RunCopy) -> bool:
        return await self._writer.write(_import_work(copy, self._clock), small=False)

    async def purge(self, tombstone: Tombstone) -> bool:
        return await self._writer.write(_purge_work(tombstone), small=False)

    async def tombstone(self, run_id: RunId) -> Tombstone | None:
        row = await self._reader.read(lambda c: c.execute(_TOMB, (run_id,)).fetchone(), quick=True)
        return None if row is None else decoded(_TOMBSTONES.decode, row[0], f"the tombstone of {run_id}")

    async def remains(self, run_id: RunId) -> Remains | None:
        return await self._reader.read(lambda c: remains(c, run_id))

    async def purge_broken(self, tombstone: Tombstone, digest: str) -> bool:
        return await self._writer.write(purge_broken_work(tombstone, digest), small=False)

    async def rewrite(self, run_id: RunId, document: Document, head_seq: int) -> bool:
        return await self._writer.write(_rewrite_work(run_id, document, head_seq, self._clock))

    async def tombstones(self, after: RunId | None, limit: int) -> list[Tombstone]:
        rows = await self._reader.read(lambda c: c.execute(_TOMBS, (after or "", limit)).fetchall())
        return [decoded(_TOMBSTONES.decode, body, f"the tombstone of {run_id}") for body, run_id in rows]

    async def add_tombstone(self, tombstone: Tombstone) -> bool:
        values = (tombstone.run_id, tombstone.head_seq, _ENCODER.encode(tombstone))
        return await self._writer.write(lambda c: c.execute(_BURY_FOREIGN, values).rowcount == 1)

    async def half_purged(self) -> list[RunId]:
        """None ever: a purge is one transaction."""
        return []


def _import_work(copy: RunCopy, clock: StoreClock) -> Work[bool]:
    """The transaction for a copy. Encoding is done here, before the lock is taken."""
    document, head_seq = copy.document, len(copy.events)
    assert copy.found or head_seq == document.head_seq, f"the copy of {document.run_id} has not the log of its document"
    created = _run_row(document, head_seq, copy.generation, clock.stamp(document.updated_at))
    chunks = [
        (part[0].seq, part[-1].seq, part[0].nonce, encode_events(part)) for part in _chunks(copy.events, CHUNK_EVENTS)
    ]

    def work(connection: sqlite3.Connection) -> bool:
        if connection.execute(TOMBSTONE, (document.run_id,)).fetchone() is not None:
            raise WrongState(f"run {document.run_id} was purged from this store; its id is used up")
        if connection.execute(_THERE, (document.run_id,)).fetchone() is not None:
            return False
        number = connection.execute(_CREATE, created).lastrowid
        assert number is not None
        connection.executemany(_APPEND, [(number, *chunk) for chunk in chunks])
        connection.executemany(
            _SEND,
            [(number, each.number, each.dedupe, each.kind, each.by, each.sent_at, bytes(each.body))
             for each in copy.messages],
        )  # fmt: skip
        task = copy.found or TaskFound("missing" if document.ended else "parked")
        if task.state != "missing":
            due = max(float(task.due_at or 0.0), 0.0) if task.state == "due" else None
            row = task_row(document, number, copy.generation, due=due, cause="woken", evidence=NO_EVIDENCE)
            connection.execute(NEW_TASK, row)
            connection.execute(_ALL_SEEN, (task.holder if task.state == "held" else None, number))
        return True

    return work


def _run_row(document: Document, head_seq: int, generation: int, updated_at: float) -> Row:
    # What came without a log was never driven by Buoy.
    task_id = orchestrate_task_id(document.run_id, generation) if head_seq else None
    return (document.run_id, *_summary(document, updated_at), head_seq, generation, task_id)


def _summary(document: Document, updated_at: float | None) -> Row:
    """What the columns of a run's row repeat of its document, and the document."""
    parent = document.parent
    return (
        document.workflow,
        document.status.value,
        document.ended,
        document.created_at,
        updated_at,
        None if parent is None else parent.run,
        None if parent is None else parent.leaf,
        _ENCODER.encode(document),
    )


def _rewrite_work(run_id: RunId, document: Document, head_seq: int, clock: StoreClock) -> Work[bool]:
    # A store with a clock has stamped the last commit already.
    summary = _summary(document, None if clock.own else document.updated_at)
    sorted_by = (document.workflow, document.queue, document.stack, document.env)

    def work(connection: sqlite3.Connection) -> bool:
        found = connection.execute(_ENDS_AT, (run_id, head_seq)).fetchone()
        if found is None:
            return False
        connection.execute(_REWRITE, (*summary, head_seq, *found))
        connection.execute(_RESORT, (*sorted_by, *found))
        return True

    return work


def _chunks(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    for begin in range(0, len(events), size):
        yield events[begin : begin + size]


def _purge_work(tombstone: Tombstone) -> Work[bool]:
    body = _ENCODER.encode(tombstone)

    def work(connection: sqlite3.Connection) -> bool:
        found = connection.execute(_OVER, (tombstone.run_id, tombstone.head_seq)).fetchone()
        if found is None:
            return False
        connection.execute(_DELETE_LOG, found)
        connection.execute(_DELETE_INBOX, found)
        connection.execute(_DELETE_RUN, found)
        connection.execute(_BURY, (tombstone.run_id, tombstone.head_seq, body))
        return True

    return work
