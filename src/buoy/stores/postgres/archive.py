"""Archive in PostgreSQL: whole runs brought in and removed, each in one transaction.

Invariants: a copy is there with all of its log, inbox and task, or not at all. A purge removes a run that ended, owes
nothing and has not moved since it was read, and leaves its tombstone in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from buoy.core.ids import RunId, orchestrate_task_id
from buoy.core.log.codec import encode_events
from buoy.core.log.document import Document
from buoy.core.log.events import Event
from buoy.errors import WrongState
from buoy.ports.maintenance import Remains, RunCopy, TaskFound, Tombstone
from buoy.stores.postgres.commit import storable, storable_or_none
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import ReadLane, Work, WriteLane
from buoy.stores.postgres.remains import purge_broken_work, remains
from buoy.stores.postgres.tasks import task_values
from buoy.stores.unreadable import decoded

# Events in one row: few rows to write, and few events to decode for one that is asked for.
CHUNK_EVENTS = 256

_ENCODER = msgspec.json.Encoder()
_TOMBSTONES = msgspec.json.Decoder(Tombstone)


class PostgresArchive:
    """The archive of one PostgreSQL store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane) -> None:
        self._writer = writer
        self._reader = reader

    async def import_run(self, copy: RunCopy) -> bool:
        return await self._writer.write(_import_work(copy))

    async def purge(self, tombstone: Tombstone) -> bool:
        return await self._writer.write(_purge_work(tombstone))

    async def tombstone(self, run_id: RunId) -> Tombstone | None:
        row = await self._reader.read(lambda c: c.row("tombstone", (run_id,)))
        return None if row is None else decoded(_TOMBSTONES.decode, row[0], f"the tombstone of {run_id}")

    async def remains(self, run_id: RunId) -> Remains | None:
        def read_remains(connection: Connection) -> Remains | None:
            with connection.snapshot():
                return remains(connection, run_id)

        return await self._reader.read(read_remains)

    async def purge_broken(self, tombstone: Tombstone, digest: str) -> bool:
        return await self._writer.write(purge_broken_work(tombstone, digest))

    async def rewrite(self, run_id: RunId, document: Document, head_seq: int) -> bool:
        return await self._writer.write(_rewrite_work(run_id, document, head_seq))

    async def tombstones(self, after: RunId | None, limit: int) -> list[Tombstone]:
        rows = await self._reader.read(lambda c: c.rows("tombstones", (after or "", limit)))
        return [decoded(_TOMBSTONES.decode, body, f"the tombstone of {run_id}") for body, run_id in rows]

    async def add_tombstone(self, tombstone: Tombstone) -> bool:
        values = {"run_id": tombstone.run_id, "head_seq": tombstone.head_seq, "body": _ENCODER.encode(tombstone)}
        return await self._writer.write(lambda c: c.row("add_foreign_tombstone", values) is not None)

    async def half_purged(self) -> list[RunId]:
        """None ever: a purge is one transaction."""
        return []


def _import_work(copy: RunCopy) -> Work[bool]:
    """The transaction for a copy. Encoding is done here, on the caller's thread."""
    document, head_seq = copy.document, len(copy.events)
    assert copy.found or head_seq == document.head_seq, f"the copy of {document.run_id} has not the log of its document"
    # What came without a log was never driven by Buoy.
    task_id = orchestrate_task_id(document.run_id, copy.generation) if head_seq else None
    created = {
        **_summary(document, head_seq),
        "run_id": document.run_id,
        "generation": copy.generation,
        "task_id": task_id,
    }
    chunks = list(_chunks(copy.events, CHUNK_EVENTS))
    log = (
        [part[0].seq for part in chunks],
        [part[-1].seq for part in chunks],
        [part[0].nonce for part in chunks],
        [encode_events(part) for part in chunks],
    )

    def import_run(connection: Connection) -> bool:
        with connection.transaction():
            if connection.row("tombstone", (document.run_id,)) is not None:
                raise WrongState(f"run {document.run_id} was purged from this store; its id is used up")
            made = connection.row("create_copy", created)
            if made is None:
                return False
            connection.run("append_copy", (made[0], *log))
            connection.run("send_copies", (made[0], *_message_columns(copy)))
            _add_task(connection, copy, made[0])
            return True

    return import_run


def _message_columns(copy: RunCopy) -> tuple[list[object], ...]:
    each = copy.messages
    return (
        [message.number for message in each],
        [storable(message.dedupe) for message in each],
        [storable(message.kind) for message in each],
        [storable_or_none(message.by) for message in each],
        [float(message.sent_at) for message in each],
        [bytes(message.body) for message in each],
    )


def _add_task(connection: Connection, copy: RunCopy, number: int) -> None:
    document = copy.document
    task = copy.found or TaskFound("missing" if document.ended else "parked")
    if task.state == "missing":
        return
    due_at = max(float(task.due_at or 0.0), 0.0) if task.state == "due" else None
    holder = task.holder if task.state == "held" else None
    connection.run(
        "new_task", task_values(document, number, copy.generation, due_at=due_at, holder=holder, all_seen=True)
    )


def _summary(document: Document, head_seq: int) -> dict[str, object]:
    """What the columns of a run's row repeat of its document, and the document."""
    parent = document.parent
    return {
        "workflow": storable(document.workflow),
        "stack": storable_or_none(document.stack),
        "env": storable_or_none(document.env),
        "status": document.status.value,
        "ended": document.ended,
        "created_at": document.created_at,
        "parent_run": None if parent is None else storable(parent.run),
        "parent_leaf": None if parent is None else storable(parent.leaf),
        "doc": _ENCODER.encode(document),
        "head_seq": head_seq,
    }


def _rewrite_work(run_id: RunId, document: Document, head_seq: int) -> Work[bool]:
    summary = {**_summary(document, head_seq), "queue": storable(document.queue)}

    def rewrite(connection: Connection) -> bool:
        with connection.transaction():
            found = connection.row("lock_run", (run_id,))
            if found is None or connection.row("log_end", (found[0],)) != (head_seq,):
                return False
            values = {**summary, "number": found[0]}
            connection.run("rewrite", values)
            connection.run("sort_task", values)
            return True

    return rewrite


def _chunks(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    for begin in range(0, len(events), size):
        yield events[begin : begin + size]


def _purge_work(tombstone: Tombstone) -> Work[bool]:
    body = _ENCODER.encode(tombstone)

    def purge(connection: Connection) -> bool:
        with connection.transaction():
            found = connection.row("lock_run", (tombstone.run_id,))
            if found is None or found[1:] != (tombstone.head_seq, True) or connection.row("has_task", found[:1]):
                return False
            for name in ("delete_log", "delete_inbox", "delete_run"):
                connection.run(name, found[:1])
            connection.run("add_tombstone", (tombstone.run_id, tombstone.head_seq, body))
            return True

    return purge
