"""Schedules in PostgreSQL: one row each, written only over the number that the writer saw."""

from __future__ import annotations

import msgspec

from buoy.core.schedule.schedule import Schedule
from buoy.ports.records import Broken
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import ReadLane, WriteLane
from buoy.stores.rows import schedule_of


class PostgresSchedules:
    """The schedules of one PostgreSQL store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane) -> None:
        self._writer = writer
        self._reader = reader

    async def schedules(self) -> list[Schedule]:
        return [each for each in await self._all() if isinstance(each, Schedule)]

    async def broken(self) -> list[Broken]:
        return [each for each in await self._all() if isinstance(each, Broken)]

    async def discard_broken(self, name: str) -> bool:
        def discard(connection: Connection) -> bool:
            with connection.transaction():
                found = connection.row("lock_schedule", (name,))
                if found is None or isinstance(schedule_of(*found), Schedule):
                    return False
                return connection.count("discard_schedule", (name,)) == 1

        return await self._writer.write(discard)

    async def _all(self) -> list[Schedule | Broken]:
        rows = await self._reader.read(lambda c: c.rows("schedules"))
        return [schedule_of(name, body) for name, body in rows]

    async def save_schedule(self, schedule: Schedule) -> bool:
        values = {"name": schedule.name, "number": schedule.number, "body": msgspec.json.encode(schedule)}

        def save(connection: Connection) -> bool:
            with connection.transaction():
                name = "add_schedule" if schedule.number == 1 else "change_schedule"
                return connection.count(name, values) == 1

        return await self._writer.write(save)
