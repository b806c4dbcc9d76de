"""Commit: the appends of many runs as one statement, each of them all or nothing.

Invariants: the fence is the run's `head_seq`, compared under the lock of its row. A fenced write changes nothing, and
its neighbours are committed. A group that collides with another transaction is split in halves, so that one run
that others fight for holds up no other.
Absent on purpose: SQL. The functions of `sql/migrations` do the work; here are only their parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import psycopg

from buoy.core.ids import RunId
from buoy.core.log.codec import encode_events
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.pause import until_asked
from buoy.ports.records import Committed, Ended, FencedOut, Held, Outcome, Released, Write
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.errors import collided
from buoy.stores.postgres.lanes import COLLISIONS_MAX, Work

_ENCODER = msgspec.json.Encoder()
NO_EVIDENCE = b"{}"


class _Change(msgspec.Struct, omit_defaults=True):
    """A new run, or what becomes of a task. `place`: of its run in the arrays, from 1."""

    place: int
    run_id: RunId
    kind: str
    seen: int
    workflow: str
    queue: str
    stack: str | None = None
    env: str | None = None
    # Only of a run that this write creates.
    created_at: float | None = None
    parent_run: str | None = None
    parent_leaf: str | None = None
    holder: str | None = None
    cause: str | None = None
    evidence: str | None = None
    # From the writer's now to the due time; None: parked.
    delay: float | None = None
    at_once: bool = False


def encode_document(document: Document) -> bytes:
    return _ENCODER.encode(document)


def commit_work(writes: Sequence[Write]) -> Work[list[Outcome]]:
    """The work for these writes. Encoding is done here, on the caller's thread."""
    # By id, as the server locks them. A second write of one run waits for its turn.
    order = sorted(range(len(writes)), key=lambda place: writes[place].run_id)
    turns: list[list[tuple[int, Write, bytes, bytes]]] = []
    seen: dict[RunId, int] = {}
    for place in order:
        write = writes[place]
        turn = seen[write.run_id] = seen.get(write.run_id, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append((place, write, encode_document(write.document), encode_events(write.events)))

    def commit_group(connection: Connection) -> list[Outcome]:
        found: dict[int, Outcome] = {}
        for group in turns:
            _commit(connection, group, found)
        return [found[place] for place in range(len(writes))]

    return commit_group


_Group = Sequence[tuple[int, Write, bytes, bytes]]


def _commit(connection: Connection, group: _Group, found: dict[int, Outcome], tries: int = COLLISIONS_MAX) -> None:
    """Commits a group, in halves if it collides."""
    try:
        fenced = _append(connection, group) if len(group) == 1 else None
        if fenced is None:
            fenced = dict(connection.rows("commit_group", _arrays(group)))
    except psycopg.Error as error:
        if not collided(error) or tries <= 1:
            raise
        _commit_halves(connection, group, found, tries - 1 if len(group) == 1 else tries)
        return
    for number, (place, write, _, _) in enumerate(group, 1):
        head = fenced.get(number)
        found[place] = Committed(write.events[-1].seq) if head is None else FencedOut(head)


def _commit_halves(connection: Connection, group: _Group, found: dict[int, Outcome], tries: int) -> None:
    """Commits both halves, whatever becomes of the first: a run that always collides keeps no other back."""
    half = (len(group) + 1) // 2
    failed: psycopg.Error | None = None
    for part in (group[:half], group[half:]):
        try:
            if part:
                _commit(connection, part, found, tries)
        except psycopg.Error as error:
            if not collided(error):
                raise
            failed = error
    if failed is not None:
        raise failed


def _append(connection: Connection, group: _Group) -> dict[int, int] | None:
    """The commonest commit: one run that moves on, and its task stays as it is. None: it is of another kind."""
    _, write, doc, body = group[0]
    if not write.after_seq or write.task is not None or write.seen:
        return None
    status, events = write.document.status, write.events
    values = (
        *(write.run_id, write.after_seq, events[-1].seq, status._value_, status in TERMINAL),
        *(doc, events[0].nonce, body),
    )
    row = connection.row("append_run", values)
    return {} if row is not None and row[0] else None


def _arrays(group: _Group) -> tuple[object, ...]:
    """The parameters of `commit_group`."""
    for _, write, _, _ in group:
        assert write.events[-1].seq == write.after_seq + len(write.events), f"gap in {write.run_id}"
    return (
        [write.run_id for _, write, _, _ in group],
        [write.after_seq for _, write, _, _ in group],
        [write.events[-1].seq for _, write, _, _ in group],
        [write.document.status._value_ for _, write, _, _ in group],
        [write.document.status in TERMINAL for _, write, _, _ in group],
        [doc for _, _, doc, _ in group],
        [write.events[0].nonce for _, write, _, _ in group],
        [body for _, _, _, body in group],
        *_changes(group),
    )


def _changes(group: _Group) -> tuple[object, ...]:
    """What becomes of the tasks of a group, the commonest kinds by the places of their runs."""
    gone: list[int] = []
    held: list[_Change] = []
    others: list[_Change] = []
    for place, (_, write, _, _) in enumerate(group, 1):
        change = _change(place, write)
        if change is None:
            continue
        plain = not change.seen and write.after_seq > 0
        if plain and change.kind == "e":
            gone.append(place)
        elif plain and change.kind == "h" and (not held or held[0].holder == change.holder):
            held.append(change)
        else:
            others.append(change)
    return (
        gone or None,
        *((_places(held), held[0].holder, _texts(held)) if held else (None, None, None)),
        *((_places(others), _texts(others)) if others else (None, None)),
    )


def _places(changes: Sequence[_Change]) -> list[int]:
    return [change.place for change in changes]


def _texts(changes: Sequence[_Change]) -> str:
    return _ENCODER.encode(changes).decode()


def _change(place: int, write: Write) -> _Change | None:
    document, task = write.document, write.task
    if task is None and not write.seen and write.after_seq:
        return None
    change = _Change(
        place,
        write.run_id,
        "s",
        write.seen,
        storable(document.workflow),
        storable(document.queue),
        storable_or_none(document.stack),
        storable_or_none(document.env),
    )
    if write.after_seq == 0:
        parent = document.parent
        change.created_at = document.created_at
        change.parent_run = None if parent is None else parent.run
        change.parent_leaf = None if parent is None else parent.leaf
        if task is None and document.status not in TERMINAL:
            # The writer named no holder: any runner may take the new run.
            task = Released(due_at=0.0, now=0.0, cause="created")
    if isinstance(task, Held):
        change.kind, change.holder = "h", task.runner
    elif isinstance(task, Ended):
        change.kind = "e"
    elif isinstance(task, Released):
        _release(change, task, parked=until_asked(document.pause))
    return change


def _release(change: _Change, task: Released, *, parked: bool) -> None:
    change.kind, change.seen = "r", max(change.seen, task.seen)
    change.cause, change.evidence = storable(task.cause), _ENCODER.encode(task.evidence).decode()
    change.delay, change.at_once = (None, False) if parked else delay_of(task)


def delay_of(change: Released) -> tuple[float | None, bool]:
    """The distance to the due time that the writer saw, and whether the task is due at once for every reader."""
    if change.due_at is None:
        return None, False
    return change.due_at - change.now, change.due_at <= change.now


def storable(text: str) -> str:
    """The text as a column can hold it: PostgreSQL has no NUL in texts. The document keeps the original."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def storable_or_none(text: str | None) -> str | None:
    return None if text is None else storable(text)
