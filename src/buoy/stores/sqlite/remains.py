"""Remains in SQLite: a run that cannot be read, byte by byte, and its removal in one transaction.

Invariant: nothing here decodes what is stored. What is removed is exactly what was copied before.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.ports.maintenance import RawPart, Remains, Tombstone
from buoy.stores.sqlite.commit import END_TASK
from buoy.stores.sqlite.lanes import Work

_ROW = """SELECT number, run_id, workflow, status, ended, head_seq, created_at, updated_at, generation,
    orchestrator_task_id, parent_run, parent_leaf, doc FROM runs WHERE run_id = ?"""
_LOG = "SELECT first_seq, last_seq, nonce, body FROM log WHERE run = ? ORDER BY first_seq"
_INBOX = "SELECT number, dedupe, kind, by, sent_at, body FROM inbox WHERE run = ? ORDER BY number"
_TASK = """SELECT task_id, run_id, workflow, queue, stack, env, due_at, holder, seen, inbox_head, cause, evidence
    FROM tasks WHERE run = ?"""
_DELETE_LOG = "DELETE FROM log WHERE run = ?"
_DELETE_INBOX = "DELETE FROM inbox WHERE run = ?"
_DELETE_RUN = "DELETE FROM runs WHERE number = ?"
_BURY = "INSERT INTO tombstones (run_id, head_seq, body) VALUES (?, ?, ?)"


def remains(connection: sqlite3.Connection, run_id: RunId) -> Remains | None:
    """The rows of that run: columns as JSON, and each blob as it is."""
    row = connection.execute(_ROW, (run_id,)).fetchone()
    if row is None:
        return None
    number, *columns, doc = row
    parts = [RawPart("run.json", _columns(columns)), RawPart("document", _bytes(doc))]
    log = connection.execute(_LOG, (number,)).fetchall()
    for first_seq, *about, body in log:
        parts.append(RawPart(f"log/{first_seq}.columns.json", _columns([first_seq, *about])))
        parts.append(RawPart(f"log/{first_seq}", _bytes(body)))
    for message, *about, body in connection.execute(_INBOX, (number,)):
        parts.append(RawPart(f"inbox/{message}.columns.json", _columns([message, *about])))
        parts.append(RawPart(f"inbox/{message}", _bytes(body)))
    task = connection.execute(_TASK, (number,)).fetchone()
    if task is not None:
        parts.append(RawPart("task.json", _columns(list(task))))
    ends = [each for each in (row[5], *(commit[1] for commit in log)) if isinstance(each, int)]
    return Remains(
        parts=tuple(parts),
        head_seq=max(ends, default=0),
        holder=RunnerId(task[7]) if task is not None and isinstance(task[7], str) else None,
        workflow=row[2] if isinstance(row[2], str) else "",
        created_at=row[6] if isinstance(row[6], float) else 0.0,
    )


def purge_broken_work(tombstone: Tombstone, digest: str) -> Work[bool]:
    body = msgspec.json.encode(tombstone)

    def work(connection: sqlite3.Connection) -> bool:
        found = remains(connection, tombstone.run_id)
        if found is None or found.digest != digest:
            return False
        number = connection.execute(_ROW, (tombstone.run_id,)).fetchone()[:1]
        for statement in (_DELETE_LOG, _DELETE_INBOX, END_TASK, _DELETE_RUN):
            connection.execute(statement, number)
        connection.execute(_BURY, (tombstone.run_id, tombstone.head_seq, body))
        return True

    return work


def _columns(values: list[Any]) -> bytes:
    """Values of any kind that SQLite may hold; bytes as base64."""
    return msgspec.json.encode(values)


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode(errors="replace")
