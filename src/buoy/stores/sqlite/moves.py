"""Moves in SQLite: the rows of the log, in the order in which they were written, are the feed. Nothing else is kept.

One writer at a time gives out the row numbers, so a later commit has a higher one. After a purge of the newest runs, or
a VACUUM, SQLite may give out numbers again: the feed then continues at the end, and may miss a move.
"""

from __future__ import annotations

import sqlite3

from buoy.core.ids import RunId
from buoy.stores.moves import place_of

_END = "SELECT coalesce(max(rowid), 0) FROM log"
_SINCE = """SELECT l.rowid, r.run_id FROM log l LEFT JOIN runs r ON r.number = l.run
    WHERE l.rowid > ? ORDER BY l.rowid LIMIT ?"""


def moved(connection: sqlite3.Connection, cursor: str | None, limit: int) -> tuple[list[RunId], str]:
    """Up to `limit` commits after that place, as the runs that they belong to."""
    place = None if cursor is None else place_of(cursor)
    end: int = connection.execute(_END).fetchone()[0]
    if place is None or place > end:
        return [], str(end)
    rows = connection.execute(_SINCE, (place, max(limit, 1))).fetchall()
    found = dict.fromkeys(RunId(run_id) for _, run_id in rows if run_id is not None)
    return list(found), str(rows[-1][0] if rows else place)
