"""Logs and inboxes in PostgreSQL: how they are read, many by one statement.

Invariant: what cannot be read of one run is an answer for its caller, and hides no other run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.events import Event
from buoy.core.times import StoreTime
from buoy.ports.records import Message
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.read_groups import only
from buoy.stores.rows import events_of


class Part(NamedTuple):
    """Which part of a log or an inbox is read: what comes after that number, and how much of it."""

    run_id: RunId
    after: int = 0
    limit: int | None = None


def logs_of(connection: Connection, parts: Sequence[Part]) -> list[list[Event] | Exception]:
    """Parts of logs. A commit holds one event at least, so a limit bounds the commits, too."""
    rows: list[list[tuple[int, bytes]]] = [[] for _ in parts]
    commits = [None if part.limit is None else part.limit + 1 for part in parts]
    asked = ([part.run_id for part in parts], [part.after for part in parts], commits)
    for place, last_seq, body in connection.rows("logs", asked):
        rows[place - 1].append((last_seq, body))
    found: list[list[Event] | Exception] = []
    for part, commits_of_part in zip(parts, rows, strict=True):
        try:
            found.append(events_of(commits_of_part, *part))
        except Exception as error:  # noqa: BLE001 - raised to the caller that asked for this run
            found.append(error)
    return found


def log_of(connection: Connection, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
    return only(logs_of(connection, [Part(run_id, after, limit)]))


def inboxes_of(connection: Connection, parts: Sequence[Part]) -> list[list[Message] | Exception]:
    """Parts of inboxes."""
    found: list[list[Message]] = [[] for _ in parts]
    asked = ([part.run_id for part in parts], [part.after for part in parts], [part.limit for part in parts])
    for place, kind, dedupe, body, sent_at, number, by in connection.rows("inboxes", asked):
        run_id = parts[place - 1].run_id
        found[place - 1].append(Message(run_id, kind, dedupe, msgspec.Raw(body), StoreTime(sent_at), number, by))
    return list(found)


def inbox_of(connection: Connection, run_id: RunId) -> list[Message]:
    return only(inboxes_of(connection, [Part(run_id)]))
