"""Commit: the appends of many runs in one transaction, each of them all or nothing.

Invariants: the fence is the run's `head_seq`, read under the write lock, so it cannot change before it is raised. For
the next append of a single run it is a condition of the one statement that writes (see the trigger in `schema`).
A fenced write adds no row to any of the lists below, so it changes nothing, and its neighbours go through.
Rows are written by statement, not by run: `executemany` with a constant statement is what makes a batch cheap. Blobs
are handed over as `bytearray`, and booleans as numbers. For `bytes` and `bool` the driver looks for an adapter each
time, in vain, which takes longer than to bind them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from buoy.core.ids import RunId, orchestrate_task_id
from buoy.core.log.codec import encode_events
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.pause import until_asked
from buoy.ports.records import Committed, Ended, FencedOut, Held, Outcome, Released, TaskChange, Write
from buoy.stores.sqlite.due import at_once
from buoy.stores.sqlite.lanes import Row, Work
from buoy.stores.store_clock import StoreClock

# A run as it is in this transaction: number, last sequence number, ended, generation, whether it has a task.
# A plain tuple, as SQLite hands it over: at 500 writes a call, wrapping it would cost as much as the disk does.
_Head: TypeAlias = tuple[int, int, int, int, int]

_ABSENT: _Head = (0, 0, 0, 0, 0)
NO_EVIDENCE = b"{}"
_ENCODER = msgspec.json.Encoder()

# The task is looked up only when some write of the call says something about tasks.
_HEADS = """SELECT r.number, r.head_seq, r.ended, r.generation, 1, r.run_id
    FROM json_each(?) j CROSS JOIN runs r ON r.run_id = j.value"""
_HEADS_AND_TASKS = """SELECT r.number, r.head_seq, r.ended, r.generation, t.run IS NOT NULL, r.run_id
    FROM json_each(?) j CROSS JOIN runs r ON r.run_id = j.value LEFT JOIN tasks t ON t.run = r.number"""
_HEAD = """SELECT number, head_seq, ended, generation,
    EXISTS (SELECT 1 FROM tasks WHERE run = runs.number) FROM runs WHERE run_id = ?"""
_CREATE = """INSERT INTO runs (run_id, workflow, status, ended, head_seq, created_at, updated_at, generation,
    orchestrator_task_id, parent_run, parent_leaf, doc) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"""
# The id of a purged run is used up.
TOMBSTONE = "SELECT head_seq FROM tombstones WHERE run_id = ?"
_NUMBERS_MAX = 50_000
_UPDATE = "UPDATE runs SET status = ?, head_seq = ?, updated_at = ?, doc = ? WHERE number = ?"
_SET_ENDED = "UPDATE runs SET ended = ? WHERE number = ?"
_SET_TASK = "UPDATE runs SET generation = ?, orchestrator_task_id = ? WHERE number = ?"
_APPEND = "INSERT INTO log (run, first_seq, last_seq, nonce, body) VALUES (?, ?, ?, ?, ?)"
NEW_TASK = """INSERT INTO tasks (run, task_id, run_id, workflow, queue, stack, env, due_at, holder, seen, inbox_head,
    cause, evidence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0,
    coalesce((SELECT max(number) FROM inbox WHERE run = ?1), 0), ?10, ?11)"""
_HOLD = "UPDATE tasks SET holder = ?, seen = max(seen, ?) WHERE run = ?"
# A message that came while the owner let go makes the task due at once: the wake-up must not be lost.
RELEASE = """UPDATE tasks SET holder = NULL, seen = max(seen, ?1), cause = ?2, evidence = ?3,
    due_at = CASE WHEN inbox_head > max(seen, ?1) THEN min(coalesce(?4, ?5), ?5) ELSE ?4 END WHERE run = ?6"""
_SEEN = "UPDATE tasks SET seen = ? WHERE run = ? AND seen < ?"
END_TASK = "DELETE FROM tasks WHERE run = ?"


@dataclass(slots=True)
class _Change:
    """What one run's writes of this call amount to for its task."""

    number: int
    generation: int
    has_task: bool
    document: Document
    task: TaskChange | None = None
    seen: int = 0


@dataclass(slots=True)
class _Rows:
    """What will be written, by statement."""

    updated: list[Row] = field(default_factory=list)
    ended: list[Row] = field(default_factory=list)
    appended: list[Row] = field(default_factory=list)
    changes: dict[RunId, _Change] = field(default_factory=dict)


def commit_work(writes: Sequence[Write], clock: StoreClock, numbers: dict[RunId, int]) -> Work[list[Outcome]]:
    """The transaction for these writes. Encoding is done here, before the lock is taken.

    `numbers`: what this process knows about the runs' numbers. Added to, and never trusted.
    """
    encoded = [(bytearray(_ENCODER.encode(write.document)), bytearray(encode_events(write.events))) for write in writes]

    def work(connection: sqlite3.Connection) -> list[Outcome]:
        heads = _heads(connection, writes)
        rows = _Rows()
        outcomes = [
            _plan(connection, heads, rows, write, doc, body, clock)
            for write, (doc, body) in zip(writes, encoded, strict=True)
        ]
        _apply(connection, rows, clock)
        if len(numbers) >= _NUMBERS_MAX:
            numbers.clear()
        numbers.update((run_id, head[0]) for run_id, head in heads.items())
        return outcomes

    return work


def going_on(write: Write, numbers: dict[RunId, int], clock: StoreClock) -> Row | None:
    """The values of `GO_ON`: the commit of a run that this process knows and whose task stays as it is. Most are such.

    One statement instead of a transaction of four: without it a sequential step takes 37 % more processor time
    (`benchmarks/speed_tricks.py`). None: it is another kind of commit.
    If the statement has changed nothing, `commit_work` shows why.
    """
    run_id, after_seq = write.run_id, write.after_seq
    number = numbers.get(run_id)
    if not number or not after_seq or write.task is not None or write.seen:
        return None
    document, status, last_seq = write.document, write.document.status, write.events[-1].seq
    assert last_seq == after_seq + len(write.events), f"gap in {run_id}"
    return (
        number,
        run_id,
        after_seq,
        1 if status in TERMINAL else 0,
        status._value_,
        last_seq,
        clock.now() if clock.own else document.updated_at,
        bytearray(_ENCODER.encode(document)),
        write.events[0].nonce,
        bytearray(encode_events(write.events)),
    )


def _heads(connection: sqlite3.Connection, writes: Sequence[Write]) -> dict[RunId, _Head]:
    if len(writes) == 1:
        run_id = writes[0].run_id
        head = connection.execute(_HEAD, (run_id,)).fetchone()
        return {} if head is None else {run_id: head}
    statement = _HEADS_AND_TASKS if any(write.task is not None for write in writes) else _HEADS
    run_ids = _ENCODER.encode([write.run_id for write in writes]).decode()
    return {row[5]: row[:5] for row in connection.execute(statement, (run_ids,))}


def _plan(
    connection: sqlite3.Connection,
    heads: dict[RunId, _Head],
    rows: _Rows,
    write: Write,
    doc: bytearray,
    body: bytearray,
    clock: StoreClock,
) -> Outcome:
    """Fences one write, or notes its rows."""
    run_id, after_seq, document, events = write.run_id, write.after_seq, write.document, write.events
    number, seq, was_ended, generation, has_task = heads.get(run_id) or _ABSENT
    if after_seq != seq:
        return FencedOut(seq)
    if not number:
        tombstone = connection.execute(TOMBSTONE, (run_id,)).fetchone()
        if tombstone is not None:
            return FencedOut(tombstone[0])
    last_seq = events[-1].seq
    assert last_seq == after_seq + len(events), f"gap in {run_id}"
    status = document.status
    ended = 1 if status in TERMINAL else 0
    if number:
        rows.updated.append((status._value_, last_seq, clock.stamp(document.updated_at), doc, number))
        if was_ended != ended:
            rows.ended.append((ended, number))
    else:
        number = _create(connection, write, doc, ended, clock)
    # For a second write of the same run in this call.
    heads[run_id] = (number, last_seq, ended, generation, has_task)
    rows.appended.append((number, after_seq + 1, last_seq, events[0].nonce, body))
    if write.task is not None or write.seen or after_seq == 0:
        change = rows.changes.setdefault(run_id, _Change(number, generation, bool(has_task), document))
        _note_task(change, write)
    return Committed(last_seq)


def _create(connection: sqlite3.Connection, write: Write, doc: bytearray, ended: int, clock: StoreClock) -> int:
    document, parent = write.document, write.document.parent
    made = connection.execute(
        _CREATE,
        (
            write.run_id,
            document.workflow,
            document.status.value,
            ended,
            write.after_seq + len(write.events),
            document.created_at,
            clock.stamp(document.updated_at),
            orchestrate_task_id(write.run_id, 1),
            None if parent is None else parent.run,
            None if parent is None else parent.leaf,
            doc,
        ),
    )
    assert made.lastrowid is not None
    return made.lastrowid


def _note_task(change: _Change, write: Write) -> None:
    """The last change of a run counts; what was seen only grows."""
    change.document = write.document
    if write.task is not None:
        change.task = write.task
    elif change.task is None and write.after_seq == 0 and write.document.status not in TERMINAL:
        # The writer named no holder: any runner may take the new run.
        created_at = write.document.created_at
        change.task = Released(due_at=created_at, now=created_at, cause="created")
    change.seen = max(change.seen, write.seen, write.task.seen if isinstance(write.task, Released) else 0)


def _apply(connection: sqlite3.Connection, rows: _Rows, clock: StoreClock) -> None:
    if rows.updated:
        connection.executemany(_UPDATE, rows.updated)
    if rows.ended:
        connection.executemany(_SET_ENDED, rows.ended)
    if rows.appended:
        connection.executemany(_APPEND, rows.appended)
    if rows.changes:
        _apply_tasks(connection, rows.changes, clock)


def _apply_tasks(connection: sqlite3.Connection, changes: dict[RunId, _Change], clock: StoreClock) -> None:
    made: list[Row] = []
    envelopes: list[Row] = []
    held: list[Row] = []
    released: list[Row] = []
    ended: list[Row] = []
    seen: list[Row] = []
    for change in changes.values():
        task, number = change.task, change.number
        if isinstance(task, Ended):
            ended.append((number,))
            continue
        if task is None:
            seen.append((change.seen, number, change.seen))
            continue
        holder = task.runner if isinstance(task, Held) else None
        if not change.has_task:
            made.append(_new_task(change, holder))
            if change.generation:
                envelopes.append((change.generation + 1, made[-1][1], number))
        if isinstance(task, Held):
            # A new task has its holder already.
            if change.has_task or change.seen:
                held.append((task.runner, change.seen, number))
        else:
            parked = until_asked(change.document.pause)
            evidence = _ENCODER.encode(task.evidence) if task.evidence else NO_EVIDENCE
            released.append(released_row(change.seen, task, evidence, clock, number, parked=parked))
    for statement, some in (
        (NEW_TASK, made),
        (_SET_TASK, envelopes),
        (_HOLD, held),
        (RELEASE, released),
        (_SEEN, seen),
        (END_TASK, ended),
    ):
        if some:
            connection.executemany(statement, some)


def _new_task(change: _Change, holder: str | None) -> Row:
    """A task that is held, or parked until the statements after it say what becomes of it."""
    return task_row(
        change.document,
        change.number,
        change.generation + 1,
        due=None,
        cause="woken",
        evidence=NO_EVIDENCE,
        holder=holder,
    )


def released_row(
    seen: int, change: Released, evidence: bytes, clock: StoreClock, number: int, *, parked: bool = False
) -> Row:
    """The values of `RELEASE`. `parked`: whatever due time the change has."""
    due_at, is_now = (None, False) if parked else clock.place(change)
    due = at_once(due_at) if is_now and due_at is not None else due_at
    return (seen, change.cause, evidence, due, at_once(clock.now()), number)


def task_row(
    document: Document,
    number: int,
    generation: int,
    *,
    due: float | None,
    cause: str,
    evidence: bytes,
    holder: str | None = None,
) -> Row:
    """The values of `NEW_TASK`. `due`: as it is stored."""
    return (
        number,
        orchestrate_task_id(document.run_id, generation),
        document.run_id,
        document.workflow,
        document.queue,
        document.stack,
        document.env,
        due,
        holder,
        cause,
        evidence,
    )
