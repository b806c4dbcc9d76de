"""Rows of the SQL stores as records: events, runners, tasks, schedules, pages.

Invariants: SQLite and PostgreSQL keep the same bytes in these columns, so one reader serves both. A row that cannot be
read becomes a value that says so, and hides no other row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.codec import decode_events
from buoy.core.log.events import Event
from buoy.core.schedule.schedule import Schedule
from buoy.errors import BadInput
from buoy.ports.records import Beat, Broken, Evidence, RunnerInfo, RunnerRecord
from buoy.stores.unreadable import GARBLED, Met, broken, nameless

_INFOS = msgspec.json.Decoder(RunnerInfo)
_BEATS = msgspec.json.Decoder(Beat)
_EVIDENCE = msgspec.json.Decoder(Evidence)
_SCHEDULES = msgspec.json.Decoder(Schedule)


def events_of(rows: Iterable[tuple[int, bytes]], run_id: RunId, after: int, limit: int | None) -> list[Event]:
    """The events after that number, of rows `(last_seq, body)`; each row is one commit."""
    found: list[Event] = []
    where = f"the log of {run_id}"
    for last_seq, body in rows:
        if limit is not None and len(found) >= limit:
            break
        if last_seq > after:
            events = decode_events(body, where)
            # Only the first commit of a page can begin before it.
            found += events if events[0].seq > after else [event for event in events if event.seq > after]
    return found if limit is None else found[:limit]


def runner_of(row: tuple[Any, ...]) -> RunnerRecord:
    """An unreadable record is reported with what the columns say: whether the runner is gone is certain."""
    info, registered_at, beat_at, beat, *rest, runner_id = row
    try:
        return RunnerRecord(_INFOS.decode(info), registered_at, beat_at, _BEATS.decode(beat), *rest)
    except (*GARBLED, TypeError) as error:
        stands = nameless(RunnerId(str(runner_id)), f"its row in the table runners cannot be read: {error}")
        # The time of the last beat tells a runner that still beats from one that does not.
        beat = beat_at if isinstance(beat_at, int | float) else stands.beat_at
        return msgspec.structs.replace(stands, beat_at=beat, gone_at=rest[0], gone_why=rest[1])


def evidence_of(run_id: RunId, data: bytes, met: Met) -> Evidence:
    """Why the task is there. It only informs; the run is driven without it."""
    try:
        return _EVIDENCE.decode(data)
    except (*GARBLED, TypeError) as error:
        met.note(broken("task", run_id, f"tasks, evidence of {run_id}", error))
        return {}


def schedule_of(name: str, body: bytes) -> Schedule | Broken:
    try:
        return _SCHEDULES.decode(body)
    except (*GARBLED, TypeError) as error:
        return broken("schedule", str(name), f"schedules, row {name}", error)


def place_before(cursor: str | None) -> int:
    """The number of a run below which a page begins."""
    if cursor is None:
        return 2**62
    if not cursor.isdecimal():
        raise BadInput(f"cursor {cursor[:40]!r} is not one that this store gave; begin without a cursor")
    return int(cursor)
