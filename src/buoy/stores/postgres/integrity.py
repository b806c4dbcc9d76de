"""Integrity of a PostgreSQL store: the server's settings, and the columns and rows that repeat what stands elsewhere.

Invariants: looking changes nothing. What is repaired follows the document or the log, which are never changed here.
Events and messages of no run are named and left: nothing is deleted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec
import psycopg

from buoy.core.ids import RunId
from buoy.ports.maintenance import IndexTrouble, Refusal, RefusalCause, StoreCheck
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.errors import READ_ONLY, code_of
from buoy.stores.postgres.lanes import ReadLane, Work, WriteLane
from buoy.stores.postgres.opening import Opened
from buoy.stores.postgres.runs import document_of
from buoy.stores.postgres.server_checks import missing_replica, server_checks
from buoy.stores.postgres.statements import load_migrations

_INDEX = re.compile(rb"^CREATE (?:UNIQUE )?INDEX (\w+) ON [^;]+;", re.MULTILINE)
_REFUSALS: dict[str, RefusalCause] = {"53100": "full", READ_ONLY: "standby", "42501": "not_permitted"}
# By the name of the statement that finds the trouble: the name of the trouble, and its text with the row's values.
_FINDS = {
    "task_without_run": ("task without run", "a task for {1}, which is no run of this store"),
    "wrong_inbox_head": ("wrong inbox head", "the task of {1} counts {2} messages, the inbox has {3}"),
    "wrong_task_id": ("wrong task id", "{1} is driven by the task {3}, its row names {2}"),
    "wrong_status": ("wrong status column", "{1} is listed as {2}, its document says {3}"),
    "wrong_status_of_an_ended_run": (
        "wrong status column of an ended run",
        "{1} is listed as {2}, its document says {3}",
    ),
    "unreadable_document": (
        "unreadable document",
        "the document of {1} is no JSON; the log is folded at every look",
    ),
    "unreadable_document_of_an_ended_run": (
        "unreadable document of an ended run",
        "the document of {1} is no JSON; the log is folded at every look",
    ),
    "events_of_no_run": (
        "events of no run",
        "events of run number {0}, which is not in the list of runs; they are kept",
    ),
    "messages_of_no_run": (
        "messages of no run",
        "messages for run number {0}, which is not in the list of runs; they are kept",
    ),
}
# These read everything that ever ran.
_DEEP = frozenset(name for name in _FINDS if name.endswith(("_of_an_ended_run", "_of_no_run")))
_REPAIRS = {
    "task without run": "repair_task_without_run",
    "wrong inbox head": "repair_wrong_inbox_head",
    "wrong task id": "repair_wrong_task_id",
    "wrong status column": "repair_wrong_status",
    "wrong status column of an ended run": "repair_wrong_status",
}
_UNREADABLE = frozenset({"unreadable document", "unreadable document of an ended run"})


class PostgresIntegrity:
    """The checks of one PostgreSQL store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane, opened: Opened) -> None:
        self._writer = writer
        self._reader = reader
        self._opened = opened
        self._indexes = _indexes_of(opened.address.quoted)

    async def checks(self) -> list[StoreCheck]:
        """The server, the schema, and what an administrator must know."""
        found = await self._reader.read(lambda c: server_checks(c, self._opened))
        missing = await self._missing_indexes()
        here = f"{len(self._indexes) - len(missing)} of {len(self._indexes)} are there"
        text = here if not missing else f"{here}; missing: {', '.join(missing)}; run `buoy doctor --fix`"
        return [*found, StoreCheck("indexes", not missing, text)]

    async def refusal(self) -> Refusal | None:
        # First: the probe takes its row back, so that it never waits for a replica.
        waits_for = await self._reader.read(missing_replica)
        if waits_for is not None:
            detail = f"synchronous_standby_names is {waits_for!r}"
            return Refusal(cause="no_replica", place=self._opened.name, detail=detail)
        return await self._writer.write(lambda c: _refusal(c, self._opened.name))

    async def index_troubles(self, *, deep: bool = False) -> AsyncIterator[IndexTrouble | None]:
        for name in await self._missing_indexes():
            yield IndexTrouble("missing index", f"the index {name} is missing: every look takes long", key=name)
        for statement, (name, text) in _FINDS.items():
            if statement in _DEEP and not deep:
                continue
            yield None
            for row in await self._reader.read(_finding(f"find_{statement}")):
                yield IndexTrouble(
                    name,
                    text.format(*row),
                    key=str(row[0]),
                    run_id=None if row[1] is None else RunId(str(row[1])),
                    mendable=name in _REPAIRS or name in _UNREADABLE,
                )

    async def recheck(self, trouble: IndexTrouble) -> bool:
        """Always: one statement reads one state."""
        return True

    async def repair(self, trouble: IndexTrouble) -> bool:
        if trouble.name == "missing index":
            return await self._make_index(trouble.key)
        if trouble.name in _UNREADABLE:
            return await self._writer.write(_fold_again(int(trouble.key)))
        statement = _REPAIRS.get(trouble.name)
        return statement is not None and await self._writer.write(_repair(statement, int(trouble.key)))

    async def _missing_indexes(self) -> list[str]:
        rows = await self._reader.read(lambda c: c.rows("indexes", (self._opened.address.schema,)))
        return sorted(self._indexes.keys() - {name for (name,) in rows})

    async def _make_index(self, name: str) -> bool:
        definition = self._indexes.get(name)
        if definition is None or name not in await self._missing_indexes():
            return False
        await self._writer.write(lambda c: c.apply(definition))
        return True


def _indexes_of(schema: str) -> dict[str, bytes]:
    """The indexes that this code wants, each with the statement that makes it."""
    texts = (migration.TEXT for migration in load_migrations(schema))
    return {found.group(1).decode(): found.group(0) for text in texts for found in _INDEX.finditer(text)}


def _refusal(connection: Connection, name: str) -> Refusal | None:
    """Tries to write one row, and takes it back."""
    try:
        connection.run("begin")
        connection.run("probe")
    except psycopg.Error as error:
        if connection.raw.closed:
            raise
        cause = _REFUSALS.get(code_of(error), "other")
        return Refusal(cause=cause, place=name, detail=" ".join(str(error).split()))
    finally:
        if not connection.raw.closed:
            connection.run("rollback")
    return None


def _finding(statement: str) -> Work[list[tuple[object, ...]]]:
    def find(connection: Connection) -> list[tuple[object, ...]]:
        return connection.rows(statement)

    return find


def _repair(statement: str, number: int) -> Work[bool]:
    def repair(connection: Connection) -> bool:
        with connection.transaction():
            return connection.count(statement, {"run": number}) > 0

    return repair


def _fold_again(number: int) -> Work[bool]:
    def fold_again(connection: Connection) -> bool:
        with connection.transaction():
            made = msgspec.json.encode(document_of(connection, number, b""))
            return connection.count("set_document", (made, number)) > 0

    return fold_again
