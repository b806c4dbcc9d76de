"""Runs in PostgreSQL: how they are read, listed and sent to.

Invariants: a run's row, its task and the head of its inbox are read by one statement, so they belong together. Lists
follow `runs.number`, which only grows: a page is neither shifted nor repeated by runs that are created later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from buoy.core import limits
from buoy.core.ids import RunId, check_message_dedupe
from buoy.core.limits import MESSAGE_BYTES_MAX, RUNS_PAGE_MAX
from buoy.core.log.document import Document, document
from buoy.core.log.inbox_room import check_room
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
from buoy.stores.moves import place_of
from buoy.stores.postgres.commit import storable, storable_or_none
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import Work
from buoy.stores.postgres.logs import log_of
from buoy.stores.postgres.read_groups import only
from buoy.stores.rows import place_before
from buoy.stores.scopes import fits_scope
from buoy.stores.unreadable import GARBLED, UNREADABLE, broken

_DOCUMENTS = msgspec.json.Decoder(Document)
_ALL = 2**62


def run_records(connection: Connection, run_ids: Sequence[RunId]) -> list[RunRecord | Exception | None]:
    """Many runs by one statement. An unreadable one is a problem of its own."""
    rows = {row[-1]: row for row in connection.rows("runs", (list(run_ids),))}
    found: list[RunRecord | Exception | None] = []
    for run_id in run_ids:
        row = rows.get(run_id)
        record = None if row is None else _look(connection, row)
        found.append(CorruptLog(record.reason) if isinstance(record, Broken) else record)
    return found


def run_record(connection: Connection, run_id: RunId) -> RunRecord | None:
    return only(run_records(connection, [run_id]))


def document_of(connection: Connection, number: int, stored: bytes) -> Document:
    """The document as stored. It is a cache: a damaged one is folded from the log."""
    try:
        return _DOCUMENTS.decode(stored)
    except (*GARBLED, TypeError):
        found = connection.row("run_of_number", (number,))
        if found is None:
            raise UnknownRun(f"run number {number} was purged while it was read") from None
        run_id = RunId(found[0])
        return document(fold(run_id, log_of(connection, run_id, 0, None)))


def _record(connection: Connection, row: tuple[Any, ...]) -> RunRecord | None:
    """None: it was purged while it was read."""
    number, stored, task_id, generation, holder, due_at, inbox_head, has_task, updated_at, _ = row
    try:
        doc = document_of(connection, number, stored)
    except UnknownRun:
        return None
    return RunRecord(
        document=doc,
        envelope=Envelope(orchestrator_task_id=task_id, generation=generation),
        updated_at=StoreTime(updated_at),
        holder=holder,
        due_at=None if due_at is None else StoreTime(due_at),
        inbox_head=inbox_head,
        has_task=has_task,
    )


def _look(connection: Connection, row: tuple[Any, ...]) -> RunRecord | Broken | None:
    """One of many: an unreadable one is named, and hides no other."""
    try:
        return _record(connection, row)
    except UNREADABLE as error:
        return broken("run", str(row[-1]), f"runs, row {row[0]}", error)


def landed(connection: Connection, writes: Sequence[Write]) -> list[Outcome | None]:
    """What is in the place of each write, by one statement."""
    found: list[Outcome | None] = [None] * len(writes)
    asked = ([write.run_id for write in writes], [write.after_seq + 1 for write in writes])
    for place, head_seq, nonce in connection.rows("landed", asked):
        events = writes[place - 1].events
        ours = nonce is not None and nonce == events[0].nonce
        found[place - 1] = Committed(events[-1].seq) if ours else FencedOut(head_seq)
    return found


def send_work(message: Message) -> Work[Receipt]:
    """The statement that puts a message into its run's inbox, and wakes a run that no runner holds."""
    check_message_dedupe(message.dedupe)
    body, run_id = bytes(message.body), message.run_id
    if len(body) > MESSAGE_BYTES_MAX:
        raise TooLarge(
            f"the {message.kind} for {run_id} has {len(body):,} bytes, the limit is {MESSAGE_BYTES_MAX:,}; "
            "store it elsewhere and send a reference"
        )
    about = (storable(message.dedupe), storable(message.kind), storable_or_none(message.by))

    def send_message(connection: Connection) -> Receipt:
        outcome, number = _send(connection, (run_id, *about, body), limits.INBOX_UNREAD_MAX)
        if outcome == "full":
            record = run_record(connection, run_id)
            if record is not None:
                check_room(run_id, message.kind, number, record.document)
            outcome, number = _send(connection, (run_id, *about, body), _ALL)
        if outcome == "unknown":
            raise UnknownRun(f"there is no run {run_id} in this store")
        return Receipt(number, duplicate=outcome == "duplicate")

    return send_message


def _send(connection: Connection, values: tuple[object, ...], head_max: int) -> tuple[str, int]:
    row = connection.row("send_message", (*values, head_max))
    assert row is not None
    return row[0], row[1]


def page_of_runs(connection: Connection, query: RunQuery, cursor: str | None, limit: int) -> RunPage:
    """Newest first. One statement per index that serves the query, merged here."""
    limit = max(1, min(limit, RUNS_PAGE_MAX))
    values = _narrowing(query, place_before(cursor), limit + 1)
    rows = [row for name, more in _searches(query, "page") for row in connection.rows(name, {**values, **more})]
    rows.sort(key=lambda row: -row[0])
    shown = rows[:limit]
    found = [_look(connection, row) for row in shown]
    return RunPage(
        runs=tuple(each for each in found if isinstance(each, RunRecord) and fits_scope(each.document, query)),
        cursor=str(shown[-1][0]) if len(rows) > limit else None,
        broken=tuple(each for each in found if isinstance(each, Broken)),
    )


def counts(connection: Connection, query: RunQuery) -> dict[str, int]:
    """Ended runs by the index over statuses, active runs by their rows."""
    chosen = query if query.statuses else msgspec.structs.replace(query, statuses=tuple(Status))
    values = _narrowing(query, _ALL, _ALL)
    found: dict[str, int] = {}
    for name, more in _searches(chosen, "count"):
        found.update((str(status), number) for status, number in connection.rows(name, {**values, **more}))
    return found


def _searches(query: RunQuery, what: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The statements that serve a query, each by one index, and their further parameters."""
    ended = sorted({str(status) for status in query.statuses if status in TERMINAL})
    active = sorted({str(status) for status in query.statuses} - set(ended))
    if query.holder is not None:
        yield f"{what}_held", {"holder": query.holder, "statuses": [*active, *ended] or None}
    elif not query.statuses:
        yield f"{what}_all", {}
    else:
        if active:
            yield f"{what}_active", {"statuses": active}
        for status in ended:
            yield f"{what}_ended", {"status": status}


def _narrowing(query: RunQuery, before: int, limit: int) -> dict[str, object]:
    """The parameters of the fragment `narrow`. None narrows nothing."""
    by_env = query.env is not msgspec.UNSET
    return {
        "workflow": query.workflow,
        "parent": query.parent,
        "text": query.text or None,
        "created_from": query.created_from,
        "created_before": query.created_before,
        "updated_before": None if query.updated_before is None else float(query.updated_before),
        "stack": query.stack,
        "by_env": by_env,
        "env": query.env if by_env else None,
        "before": before,
        "limit": limit,
    }


def run_ids(connection: Connection, prefix: str, limit: int) -> list[RunId]:
    """Out of the index over ids alone."""
    return [RunId(row[0]) for row in connection.rows("run_ids", {"prefix": storable(prefix), "limit": limit})]


def moved(connection: Connection, cursor: str | None, limit: int) -> tuple[list[RunId], str]:
    """Commits after that place, as the runs that they belong to.

    Commits beside an older transaction that is still under way are named, too, and again at the next look.
    """
    place = None if cursor is None else place_of(cursor)
    row = connection.row("moves_end")
    assert row is not None
    settled, end = row
    if place is None or place > max(end, settled):
        return [], str(min(end, settled))
    rows = connection.rows("moves", (place, max(limit, 1)))
    found = dict.fromkeys(RunId(run_id) for _, run_id in rows if run_id is not None)
    return list(found), str(max([place, *(tx for tx, _ in rows if tx <= settled)]))


def times(connection: Connection, asked: Sequence[None]) -> list[StoreTime | Exception]:
    """The store's time, once for all who ask."""
    row = connection.row("now")
    assert row is not None
    return [StoreTime(row[0])] * len(asked)


def define_work(version: str, data: bytes) -> Work[None]:
    def define(connection: Connection) -> None:
        with connection.transaction():
            connection.run("define", (version, data))

    return define


def definition(connection: Connection, version: str) -> bytes | None:
    row = connection.row("definition", (version,))
    return None if row is None else bytes(row[0])
