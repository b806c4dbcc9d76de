"""Remains in PostgreSQL: a run that cannot be read, byte by byte, and its removal in one transaction.

Invariant: nothing here decodes what is stored. What is removed is exactly what was copied before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.ports.maintenance import RawPart, Remains, Tombstone
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import Work


def remains(connection: Connection, run_id: RunId) -> Remains | None:
    """The rows of that run: columns as JSON, and each blob as it is."""
    row = connection.row("raw_run", (run_id,))
    if row is None:
        return None
    number, *columns, doc = row
    parts = [RawPart("run.json", msgspec.json.encode(columns)), RawPart("document", bytes(doc))]
    log = connection.rows("raw_log", (number,))
    parts += _parts("log", log)
    parts += _parts("inbox", connection.rows("raw_inbox", (number,)))
    task = connection.row("raw_task", (number,))
    if task is not None:
        parts.append(RawPart("task.json", msgspec.json.encode(task)))
    return Remains(
        parts=tuple(parts),
        head_seq=max([row[5], *(commit[1] for commit in log)]),
        holder=RunnerId(task[7]) if task is not None and task[7] is not None else None,
        workflow=row[2],
        created_at=row[6],
    )


def _parts(folder: str, rows: list[tuple[Any, ...]]) -> list[RawPart]:
    """Two parts for each row: its columns and its body."""
    found = []
    for *columns, body in rows:
        found.append(RawPart(f"{folder}/{columns[0]}.columns.json", msgspec.json.encode(columns)))
        found.append(RawPart(f"{folder}/{columns[0]}", bytes(body)))
    return found


def purge_broken_work(tombstone: Tombstone, digest: str) -> Work[bool]:
    body = msgspec.json.encode(tombstone)

    def purge_broken(connection: Connection) -> bool:
        with connection.transaction():
            locked = connection.row("lock_run", (tombstone.run_id,))
            found = None if locked is None else remains(connection, tombstone.run_id)
            if locked is None or found is None or found.digest != digest:
                return False
            for name in ("delete_log", "delete_inbox", "delete_task", "delete_run"):
                connection.run(name, locked[:1])
            connection.run("add_tombstone", (tombstone.run_id, tombstone.head_seq, body))
            return True

    return purge_broken
