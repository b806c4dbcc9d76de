"""Schedules in SQLite: one row each, written only over the number that the writer saw."""

from __future__ import annotations

import sqlite3

import msgspec

from buoy.core.schedule.schedule import Schedule
from buoy.ports.records import Broken
from buoy.stores.rows import schedule_of
from buoy.stores.sqlite.lanes import ReadLane, WriteLane

_ALL = "SELECT name, body FROM schedules ORDER BY name"
_ONE = "SELECT name, body FROM schedules WHERE name = ?"
_DISCARD = "DELETE FROM schedules WHERE name = ?"
_ADD = "INSERT INTO schedules (name, number, body) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING"
_CHANGE = "UPDATE schedules SET number = ?2, body = ?3 WHERE name = ?1 AND number = ?2 - 1"


class SqliteSchedules:
    """The schedules of one SQLite store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane) -> None:
        self._writer = writer
        self._reader = reader

    async def schedules(self) -> list[Schedule]:
        return [each for each in await self._all() if isinstance(each, Schedule)]

    async def broken(self) -> list[Broken]:
        return [each for each in await self._all() if isinstance(each, Broken)]

    async def discard_broken(self, name: str) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            found = connection.execute(_ONE, (name,)).fetchone()
            if found is None or isinstance(schedule_of(*found), Schedule):
                return False
            return connection.execute(_DISCARD, (name,)).rowcount == 1

        return await self._writer.write(work)

    async def _all(self) -> list[Schedule | Broken]:
        rows = await self._reader.read(lambda c: c.execute(_ALL).fetchall(), quick=True)
        return [schedule_of(name, body) for name, body in rows]

    async def save_schedule(self, schedule: Schedule) -> bool:
        values = (schedule.name, schedule.number, msgspec.json.encode(schedule))

        def work(connection: sqlite3.Connection) -> bool:
            if schedule.number == 1:
                return connection.execute(_ADD, values).rowcount == 1
            return connection.execute(_CHANGE, values).rowcount == 1

        return await self._writer.write(work)
