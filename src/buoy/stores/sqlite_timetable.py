"""Schedules in SQLite: one row each, written only over the number that the writer saw."""

from __future__ import annotations

import sqlite3

import msgspec

from buoy.core.schedule import Schedule
from buoy.stores.sqlite_lanes import ReadLane, WriteLane

_SCHEDULES = msgspec.json.Decoder(Schedule)

_ALL = "SELECT body FROM schedules ORDER BY name"
_ADD = "INSERT INTO schedules (name, number, body) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING"
_CHANGE = "UPDATE schedules SET number = ?2, body = ?3 WHERE name = ?1 AND number = ?2 - 1"


class SqliteTimetable:
    """The timetable of one SQLite store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane) -> None:
        self._writer = writer
        self._reader = reader

    async def schedules(self) -> list[Schedule]:
        rows = await self._reader.read(lambda c: c.execute(_ALL).fetchall(), quick=True)
        return [_SCHEDULES.decode(body) for (body,) in rows]

    async def save_schedule(self, schedule: Schedule) -> bool:
        values = (schedule.name, schedule.number, msgspec.json.encode(schedule))

        def work(connection: sqlite3.Connection) -> bool:
            if schedule.number == 1:
                return connection.execute(_ADD, values).rowcount == 1
            return connection.execute(_CHANGE, values).rowcount == 1

        return await self._writer.write(work)
