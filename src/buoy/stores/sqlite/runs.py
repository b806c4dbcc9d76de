"""Runs, logs and inboxes in SQLite: how they are read, listed and sent to.

Invariants: a run's row, its task and the head of its inbox are read by one statement, so they belong together. Lists go
by `runs.number`, which only grows: a page is neither shifted nor repeated by runs that are created later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from buoy.core.ids import RunId, check_message_dedupe
from buoy.core.limits import MESSAGE_BYTES_MAX, RUNS_PAGE_MAX
from buoy.core.log.document import Document, document
from buoy.core.log.events import Event
from buoy.core.log.inbox_room import check_room, may_be_full
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.state import fold
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, TooLarge, UnknownRun
from buoy.ports.records import (
    Broken,
    Committed,
    Envelope,
    FencedOut,
    Message,
    Outcome,
    Receipt,
    RunPage,
    RunQuery,
    RunRecord,
    Write,
)
from buoy.stores.rows import events_of, place_before
from buoy.stores.scopes import fits_scope
from buoy.stores.sqlite.due import at_once, due_since
from buoy.stores.sqlite.lanes import Work
from buoy.stores.store_clock import StoreClock
from buoy.stores.unreadable import GARBLED, UNREADABLE, broken

# Commits of a log that are read on the event loop; a longer log goes to the reader's thread.
QUICK_COMMITS_MAX = 32

_DOCUMENTS = msgspec.json.Decoder(Document)
_RECORD = """SELECT r.number, r.doc, r.orchestrator_task_id, r.generation, t.holder,
    CASE WHEN t.holder IS NULL THEN t.due_at END,
    coalesce(t.inbox_head, (SELECT max(number) FROM inbox WHERE run = r.number), 0), t.run IS NOT NULL,
    r.updated_at, r.run_id FROM runs r LEFT JOIN tasks t ON t.run = r.number"""
_RUN = f"{_RECORD} WHERE r.run_id = ?"
_HELD = """SELECT r.number, r.doc, r.orchestrator_task_id, r.generation, t.holder, NULL, t.inbox_head, 1,
    r.updated_at, r.run_id FROM tasks t CROSS JOIN runs r ON r.number = t.run WHERE t.holder = ?"""
_COUNT = "SELECT r.status, count(*) FROM runs r WHERE 1"
_COUNT_HELD = """SELECT r.status, count(*) FROM tasks t CROSS JOIN runs r ON r.number = t.run WHERE t.holder = ?"""
# From the commit that holds event `after + 1`, which may have started earlier.
_LOG = """SELECT l.last_seq, l.body FROM runs r CROSS JOIN log l ON l.run = r.number WHERE r.run_id = ?1
    AND l.first_seq >= coalesce((SELECT max(first_seq) FROM log WHERE run = r.number AND first_seq <= ?2 + 1), 0)
    ORDER BY l.first_seq"""
_LOG_QUICK = f"{_LOG} LIMIT {QUICK_COMMITS_MAX + 1}"
# The commit that begins where each write would, if there is one, and how far the run has come.
_LANDED = """SELECT j.key, r.head_seq, l.nonce
    FROM json_each(?) j CROSS JOIN runs r ON r.run_id = json_extract(j.value, '$[0]')
    LEFT JOIN log l ON l.run = r.number AND l.first_seq = json_extract(j.value, '$[1]')
    WHERE r.head_seq >= json_extract(j.value, '$[1]')"""
# '~' sorts after every character of an id.
_IDS = "SELECT run_id FROM runs WHERE run_id >= ?1 AND run_id < ?1 || '~' ORDER BY run_id LIMIT ?2"
_INBOX = """SELECT i.kind, i.dedupe, i.body, i.sent_at, i.number, i.by
    FROM runs r CROSS JOIN inbox i ON i.run = r.number WHERE r.run_id = ? AND i.number > ? ORDER BY i.number
    LIMIT ?"""
_TARGET = """SELECT r.number, t.run IS NOT NULL, coalesce((SELECT max(number) FROM inbox WHERE run = r.number), 0),
    (SELECT number FROM inbox WHERE run = r.number AND dedupe = ?2)
    FROM runs r LEFT JOIN tasks t ON t.run = r.number WHERE r.run_id = ?1"""
_DOCUMENT = "SELECT doc FROM runs WHERE number = ?"
_SEND = "INSERT INTO inbox (run, number, dedupe, kind, by, sent_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ARRIVED = "UPDATE tasks SET inbox_head = ? WHERE run = ?"
_WAKE = """UPDATE tasks SET due_at = ?1, cause = 'woken', evidence = '{}'
    WHERE run = ?2 AND holder IS NULL AND (due_at IS NULL OR due_at > ?3)"""
_DEFINE = "INSERT OR IGNORE INTO definitions VALUES (?, ?)"
_DEFINITION = "SELECT body FROM definitions WHERE version = ?"


def run_record(connection: sqlite3.Connection, run_id: RunId, clock: StoreClock) -> RunRecord | None:
    row = connection.execute(_RUN, (run_id,)).fetchone()
    found = None if row is None else _look(connection, row, clock)
    if isinstance(found, Broken):
        raise CorruptLog(found.reason)
    return found


def document_of(connection: sqlite3.Connection, number: int, stored: bytes) -> Document:
    """The document as stored. It is a cache: a damaged one is made again from the log."""
    try:
        return _DOCUMENTS.decode(stored)
    except (*GARBLED, TypeError):
        found = connection.execute("SELECT run_id FROM runs WHERE number = ?", (number,)).fetchone()
        if found is None:
            raise UnknownRun(f"run number {number} was purged while it was looked at") from None
        run_id = RunId(found[0])
        return document(fold(run_id, whole_log(connection, run_id, 0, None)))


def _record(connection: sqlite3.Connection, row: tuple[Any, ...], clock: StoreClock) -> RunRecord | None:
    """None: it was purged while it was looked at."""
    number, stored, task_id, generation, holder, due, inbox_head, has_task, taken_at, _ = row
    try:
        doc = document_of(connection, number, stored)
    except UnknownRun:
        return None
    return RunRecord(
        document=doc,
        envelope=Envelope(orchestrator_task_id=task_id, generation=generation),
        updated_at=StoreTime(taken_at if clock.own else doc.updated_at),
        holder=holder,
        due_at=None if due is None else StoreTime(due_since(due, clock.now())),
        inbox_head=inbox_head,
        has_task=bool(has_task),
    )


def short_log(connection: sqlite3.Connection, run_id: RunId, after: int, limit: int | None) -> list[Event] | None:
    """The events after that number, or None if there are so many that a thread should read them."""
    rows = connection.execute(_LOG_QUICK, (run_id, after)).fetchall()
    return None if len(rows) > QUICK_COMMITS_MAX else events_of(rows, run_id, after, limit)


def whole_log(connection: sqlite3.Connection, run_id: RunId, after: int, limit: int | None) -> list[Event]:
    return events_of(connection.execute(_LOG, (run_id, after)), run_id, after, limit)


def landed(connection: sqlite3.Connection, writes: Sequence[Write]) -> list[Outcome | None]:
    """What is in the place of each write, by one statement."""
    found: list[Outcome | None] = [None] * len(writes)
    asked = msgspec.json.encode([(write.run_id, write.after_seq + 1) for write in writes]).decode()
    for place, head_seq, nonce in connection.execute(_LANDED, (asked,)):
        events = writes[place].events
        ours = nonce is not None and nonce == events[0].nonce
        found[place] = Committed(events[-1].seq) if ours else FencedOut(head_seq)
    return found


def messages(connection: sqlite3.Connection, run_id: RunId, after: int, limit: int | None) -> list[Message]:
    # Less than none is all of them.
    most = -1 if limit is None else limit
    return [
        Message(run_id, kind, dedupe, msgspec.Raw(body), sent_at, number, by)
        for kind, dedupe, body, sent_at, number, by in connection.execute(_INBOX, (run_id, after, most))
    ]


def send_work(message: Message, clock: StoreClock) -> Work[Receipt]:
    """The transaction that puts a message into its run's inbox and wakes a run that no runner holds."""
    check_message_dedupe(message.dedupe)
    body, now = bytes(message.body), clock.now()
    if len(body) > MESSAGE_BYTES_MAX:
        raise TooLarge(
            f"the {message.kind} for {message.run_id} has {len(body):,} bytes, the limit is {MESSAGE_BYTES_MAX:,}; "
            "store it elsewhere and send a reference"
        )

    def work(connection: sqlite3.Connection) -> Receipt:
        target = connection.execute(_TARGET, (message.run_id, message.dedupe)).fetchone()
        if target is None:
            raise UnknownRun(f"there is no run {message.run_id} in this store")
        run, has_task, head, known = target
        if known is not None:
            return Receipt(known, duplicate=True)
        # A run that ended has no task and consumes nothing: waiting for room would be in vain.
        if has_task and may_be_full(head):
            stored = connection.execute(_DOCUMENT, (run,)).fetchone()[0]
            check_room(message.run_id, message.kind, head, document_of(connection, run, stored))
        number = head + 1
        sent_at = clock.stamp(float(message.sent_at) or now)
        values = (run, number, message.dedupe, message.kind, message.by, sent_at, body)
        connection.execute(_SEND, values)
        # A run that ended has no task: these touch nothing.
        connection.execute(_ARRIVED, (number, run))
        connection.execute(_WAKE, (at_once(now), run, now))
        return Receipt(number)

    return work


def page_of_runs(
    connection: sqlite3.Connection, query: RunQuery, cursor: str | None, limit: int, clock: StoreClock
) -> RunPage:
    """Newest first. One statement per index that can serve the query, merged here."""
    limit = max(1, min(limit, RUNS_PAGE_MAX))
    before = place_before(cursor)
    narrow, narrowed = _narrowing(query)
    rows: list[tuple[Any, ...]] = []
    for where, values in _searches(query):
        record = _HELD if query.holder is not None else f"{_RECORD} WHERE 1"
        held = () if query.holder is None else (query.holder,)
        order = "AND r.number < ? ORDER BY r.number DESC LIMIT ?"
        rows += connection.execute(f"{record} {where} {narrow} {order}", (*held, *values, *narrowed, before, limit + 1))
    rows.sort(key=lambda row: -row[0])
    shown = rows[:limit]
    found = [_look(connection, row, clock) for row in shown]
    return RunPage(
        runs=tuple(each for each in found if isinstance(each, RunRecord) and fits_scope(each.document, query)),
        cursor=str(shown[-1][0]) if len(rows) > limit else None,
        broken=tuple(each for each in found if isinstance(each, Broken)),
    )


def counts(connection: sqlite3.Connection, query: RunQuery) -> dict[str, int]:
    """Of what ended by the index over statuses; of what is active by their rows."""
    narrow, narrowed = _narrowing(query)
    held = () if query.holder is None else (query.holder,)
    table = _COUNT if query.holder is None else _COUNT_HELD
    chosen = query if query.statuses else msgspec.structs.replace(query, statuses=tuple(Status))
    found: dict[str, int] = {}
    for where, values in _searches(chosen):
        rows = connection.execute(f"{table} {where} {narrow} GROUP BY r.status", (*held, *values, *narrowed))
        found.update((str(status), number) for status, number in rows)
    return found


def _look(connection: sqlite3.Connection, row: tuple[Any, ...], clock: StoreClock) -> RunRecord | Broken | None:
    """One of many: an unreadable one is named, and hides no other."""
    try:
        return _record(connection, row, clock)
    except UNREADABLE as error:
        return broken("run", str(row[-1]), f"runs, row {row[0]}", error)


def _searches(query: RunQuery) -> list[tuple[str, tuple[str, ...]]]:
    """Conditions and their values, so that each is served by one index: all active ones, or one way of ending."""
    name = () if query.workflow is None else (query.workflow,)
    if not query.statuses:
        return [("AND r.workflow = ?" if name else "", name)]
    # The plus keeps SQLite from the index over workflows, which is full of runs that ended long ago.
    named = " AND +r.workflow = ?" if name else ""
    found: list[tuple[str, tuple[str, ...]]] = []
    ended = sorted({status for status in query.statuses if status in TERMINAL})
    active = sorted(set(query.statuses) - set(ended))
    if active:
        marks = ", ".join("?" * len(active))
        found.append((f"AND r.ended = 0 AND r.status IN ({marks}){named}", (*active, *name)))
    found.extend((f"AND r.ended = 1 AND r.status = ?{named}", (status, *name)) for status in ended)
    return found


# Stack and env are in the document alone, so that they cost a commit nothing. A document that is not this run's, or
# that is none, is made again from the log, and compared after that.
_IN_DOCUMENT = """AND CASE WHEN json_valid(CAST(r.doc AS TEXT))
    THEN json_extract(CAST(r.doc AS TEXT), '$.run_id') IS NOT r.run_id OR"""
_IN_STACK = f"""{_IN_DOCUMENT} json_extract(CAST(r.doc AS TEXT), '$.stack') IS NULL
    OR json_extract(CAST(r.doc AS TEXT), '$.stack') = ? ELSE 1 END"""
_IN_ENV = f"{_IN_DOCUMENT} json_extract(CAST(r.doc AS TEXT), '$.env') IS ? ELSE 1 END"


def _narrowing(query: RunQuery) -> tuple[str, list[str | float | None]]:
    """Further conditions and their values. Parents have an index of their own, the others are looked at one by one."""
    found: list[tuple[str, str | float | None]] = [
        ("AND r.parent_run = ?", query.parent),
        ("AND instr(r.run_id, ?) > 0", query.text or None),
        ("AND r.created_at >= ?", query.created_from),
        ("AND r.created_at < ?", query.created_before),
        ("AND r.updated_at < ?", None if query.updated_before is None else float(query.updated_before)),
        (_IN_STACK, query.stack),
    ]
    chosen: list[tuple[str, str | float | None]] = [each for each in found if each[1] is not None]
    if query.env is not msgspec.UNSET:
        chosen.append((_IN_ENV, query.env))
    return " ".join(part for part, _ in chosen), [value for _, value in chosen]


def run_ids(connection: sqlite3.Connection, prefix: str, limit: int) -> list[RunId]:
    """Out of the index over ids alone."""
    return [RunId(row[0]) for row in connection.execute(_IDS, (prefix, limit))]


def define_work(version: str, data: bytes) -> Work[None]:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute(_DEFINE, (version, data))

    return work


def definition(connection: sqlite3.Connection, version: str) -> bytes | None:
    row = connection.execute(_DEFINITION, (version,)).fetchone()
    return None if row is None else bytes(row[0])
