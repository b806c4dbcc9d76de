"""Integrity checks of an SQLite store: settings, indexes, and columns and rows that repeat other data.

Invariants: a check changes nothing. A repair follows the document or the log, and never changes those. Events and
messages without a run are reported and stay: nothing is deleted.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from buoy.core.ids import RunId
from buoy.ports.host import Clock
from buoy.ports.maintenance import IndexTrouble, Refusal, StoreCheck
from buoy.stores.clock_check import clock_check
from buoy.stores.sqlite.lanes import ReadLane, Work, WriteLane
from buoy.stores.sqlite.runs import document_of
from buoy.stores.sqlite.schema import MIGRATIONS
from buoy.stores.write_probe import write_refusal

# One check reports so many troubles of one kind; after their repair the next check finds the rest.
TROUBLES_MAX = 1_000
# Names of triggers or views in one line.
SHOWN_MAX = 10

_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+)")
INDEXES = {
    found.group(1): statement
    for statements in MIGRATIONS
    for statement in statements
    if (found := _INDEX.match(statement)) is not None
}
_PROGRAM = re.compile(r"CREATE (TRIGGER|VIEW) (\w+)")
# What of the database is carried out when a statement is: by kind and name.
PROGRAMS = {
    (found.group(1).lower(), found.group(2)): statement
    for statements in MIGRATIONS
    for statement in statements
    if (found := _PROGRAM.match(statement)) is not None
}
_OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY name"
_NEWEST = """SELECT max(at) FROM (
    SELECT max(updated_at) AS at FROM (SELECT updated_at FROM runs ORDER BY number DESC LIMIT 100)
    UNION ALL SELECT max(beat_at) FROM runners WHERE gone_at IS NULL)"""
# By name: what finds the trouble (number, run id, and what its text tells), and what repairs it.
_FINDS = {
    "task without run": """SELECT t.run, t.run_id FROM tasks t LEFT JOIN runs r ON r.number = t.run
        WHERE r.number IS NULL""",
    "wrong inbox head": """SELECT run, run_id, inbox_head, head FROM (SELECT t.run, t.run_id, t.inbox_head,
        coalesce((SELECT max(number) FROM inbox WHERE run = t.run), 0) AS head FROM tasks t)
        WHERE inbox_head <> head""",
    "wrong task id": """SELECT r.number, r.run_id, r.orchestrator_task_id, t.task_id
        FROM tasks t JOIN runs r ON r.number = t.run WHERE r.orchestrator_task_id IS NOT t.task_id""",
    "wrong status column": """SELECT number, run_id, status, said FROM (SELECT number, run_id, status,
        CASE WHEN json_valid(CAST(doc AS TEXT)) THEN json_extract(CAST(doc AS TEXT), '$.status') END AS said
        FROM runs WHERE ended = 0) WHERE said IS NOT NULL
        AND (said <> status OR said IN ('completed', 'failed', 'cancelled'))""",
    "wrong status column of an ended run": """SELECT number, run_id, status, said FROM (SELECT number, run_id, status,
        CASE WHEN json_valid(CAST(doc AS TEXT)) THEN json_extract(CAST(doc AS TEXT), '$.status') END AS said
        FROM runs WHERE ended = 1) WHERE said IS NOT NULL
        AND (said <> status OR said NOT IN ('completed', 'failed', 'cancelled'))""",
    "unreadable document": """SELECT number, run_id FROM runs
        WHERE ended = 0 AND NOT json_valid(CAST(doc AS TEXT))""",
    "unreadable document of an ended run": """SELECT number, run_id FROM runs
        WHERE ended = 1 AND NOT json_valid(CAST(doc AS TEXT))""",
    "events of no run": """SELECT DISTINCT l.run, NULL FROM log l LEFT JOIN runs r ON r.number = l.run
        WHERE r.number IS NULL""",
    "messages of no run": """SELECT DISTINCT i.run, NULL FROM inbox i LEFT JOIN runs r ON r.number = i.run
        WHERE r.number IS NULL""",
}
_RIGHT_STATUS = """UPDATE runs SET status = json_extract(CAST(doc AS TEXT), '$.status'),
    ended = json_extract(CAST(doc AS TEXT), '$.status') IN ('completed', 'failed', 'cancelled')
    WHERE number = ?1 AND json_valid(CAST(doc AS TEXT))"""
_MENDS = {
    "task without run": "DELETE FROM tasks WHERE run = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE number = ?1)",
    "wrong inbox head": """UPDATE tasks SET inbox_head = coalesce((SELECT max(number) FROM inbox WHERE run = ?1), 0)
        WHERE run = ?1""",
    "wrong task id": """UPDATE runs SET orchestrator_task_id = (SELECT task_id FROM tasks WHERE run = ?1)
        WHERE number = ?1""",
    "wrong status column": _RIGHT_STATUS,
    "wrong status column of an ended run": _RIGHT_STATUS,
}
_TEXTS = {
    "task without run": "a task for {1}, which is no run of this store",
    "wrong inbox head": "the task of {1} counts {2} messages, the inbox has {3}",
    "wrong task id": "{1} is driven by the task {3}, its row names {2}",
    "wrong status column": "{1} is listed as {2}, its document says {3}",
    "wrong status column of an ended run": "{1} is listed as {2}, its document says {3}",
    "unreadable document": "the document of {1} is no JSON; the log is folded at every look",
    "unreadable document of an ended run": "the document of {1} is no JSON; the log is folded at every look",
    "events of no run": "events of run number {0}, which is not in the list of runs; they are kept",
    "messages of no run": "messages for run number {0}, which is not in the list of runs; they are kept",
}
# These look at all that ever ran.
_DEEP = frozenset(
    {
        "wrong status column of an ended run",
        "unreadable document of an ended run",
        "events of no run",
        "messages of no run",
    }
)
_UNREADABLE = frozenset({"unreadable document", "unreadable document of an ended run"})
_SET_DOCUMENT = "UPDATE runs SET doc = ? WHERE number = ?"


def _refusal(connection: sqlite3.Connection) -> Refusal | None:
    """Beside the file: only SQLite itself may open that."""
    (file,) = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
    return write_refusal(Path(file).parent)


class SqliteIntegrity:
    """The integrity checks of one SQLite store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane, clock: Clock, *, read_only: bool) -> None:
        self._read_only = read_only
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def checks(self) -> list[StoreCheck]:
        now = self._clock.now()
        found = await self._reader.read(lambda connection: _checks(connection, now))
        return [*found, await self._durability()]

    async def _durability(self) -> StoreCheck:
        if self._read_only:
            return StoreCheck("durability", True, "opened for reading only: this user may not write here")
        mode, sync = await self._writer.settings()
        ok = mode == "wal" and sync >= 2
        found = f"journal mode {mode}, synchronous {('off', 'normal', 'full', 'extra')[min(max(sync, 0), 3)]}"
        return StoreCheck(
            "durability", ok, found if ok else f"{found}; a commit must be on the disk: expected wal, full"
        )

    async def refusal(self) -> Refusal | None:
        return await self._reader.read(_refusal)

    async def index_troubles(self, *, deep: bool = False) -> AsyncIterator[IndexTrouble | None]:
        for name in await self._reader.read(_missing_indexes):
            yield IndexTrouble("missing index", f"the index {name} is not there: every look takes long", key=name)
        for name, text in _TEXTS.items():
            if name in _DEEP and not deep:
                continue
            yield None
            for row in await self._reader.read(_rows(name)):
                yield IndexTrouble(
                    name,
                    text.format(*row),
                    key=str(row[0]),
                    run_id=None if row[1] is None else RunId(str(row[1])),
                    mendable=name in _MENDS or name in _UNREADABLE,
                )

    async def recheck(self, trouble: IndexTrouble) -> bool:
        """Always: what was read in one transaction was so."""
        return True

    async def repair(self, trouble: IndexTrouble) -> bool:
        if trouble.name == "missing index":
            return await self._writer.write(_make_index(trouble.key), small=False)
        if trouble.name in _UNREADABLE:
            return await self._writer.write(_fold_again(int(trouble.key)))
        return trouble.name in _MENDS and await self._writer.write(_mend(trouble.name, int(trouble.key)))


def _checks(connection: sqlite3.Connection, now: float) -> list[StoreCheck]:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    schema = StoreCheck("schema", version == len(MIGRATIONS), f"schema {version}, this Buoy knows {len(MIGRATIONS)}")
    found = [row[0] for row in connection.execute("PRAGMA quick_check(5)")]
    sound = found == ["ok"]
    said = "sound" if sound else f"{'; '.join(found)}; keep a copy, and repair it with `sqlite3 FILE .recover`"
    missing = _missing_indexes(connection)
    indexes = f"{len(INDEXES) - len(missing)} of {len(INDEXES)} are there"
    return [
        schema,
        StoreCheck("integrity", sound, said),
        StoreCheck("indexes", not missing, indexes),
        _foreign_programs(connection, version),
        clock_check(connection.execute(_NEWEST).fetchone()[0], now),
    ]


def _foreign_programs(connection: sqlite3.Connection, version: int) -> StoreCheck:
    """Triggers and views against those of the schema: a foreign trigger changes or deletes rows behind every commit."""
    there = {(kind, name): text for kind, name, text in connection.execute(_OBJECTS)}
    wrong = [
        f"trigger {_named(name)} is not Buoy's" for kind, name in there.keys() - PROGRAMS.keys() if kind == "trigger"
    ]
    wrong += [f"{kind} {_named(name)} was changed" for kind, name in there if _changed(kind, name, there)]
    if version == len(MIGRATIONS):
        wrong += [f"{kind} {_named(name)} is missing" for kind, name in PROGRAMS.keys() - there.keys()]
    if wrong:
        advice = "stop the workers, then look at each and drop it: `DROP TRIGGER NAME` in the sqlite3 shell"
        return StoreCheck("triggers", False, f"{', '.join(sorted(wrong)[:SHOWN_MAX])}; {advice}")
    views = sorted(_named(name) for kind, name in there.keys() - PROGRAMS.keys())
    more = f"; views of your own: {', '.join(views[:SHOWN_MAX])}" if views else ""
    return StoreCheck("triggers", True, f"triggers and views are those of schema {version}{more}")


def _changed(kind: str, name: str, there: dict[tuple[str, str], str]) -> bool:
    return (kind, name) in PROGRAMS and there[kind, name] != PROGRAMS[kind, name]


def _named(name: str) -> str:
    return '"' + ascii(name)[1:-1].replace('"', '""') + '"'


def _missing_indexes(connection: sqlite3.Connection) -> list[str]:
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    return sorted(INDEXES.keys() - there)


def _rows(name: str) -> Work[list[tuple[object, ...]]]:
    def query(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
        return connection.execute(_FINDS[name]).fetchmany(TROUBLES_MAX)

    return query


def _make_index(name: str) -> Work[bool]:
    def work(connection: sqlite3.Connection) -> bool:
        if name not in _missing_indexes(connection):
            return False
        connection.execute(INDEXES[name])
        return True

    return work


def _mend(name: str, number: int) -> Work[bool]:
    def work(connection: sqlite3.Connection) -> bool:
        return connection.execute(_MENDS[name], (number,)).rowcount > 0

    return work


def _fold_again(number: int) -> Work[bool]:
    def work(connection: sqlite3.Connection) -> bool:
        made = msgspec.json.encode(document_of(connection, number, b""))
        return connection.execute(_SET_DOCUMENT, (made, number)).rowcount > 0

    return work
