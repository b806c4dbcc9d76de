"""Schedules in objects: one numbered record each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from buoy.core.ids import check_run_id
from buoy.core.schedule.schedule import Schedule
from buoy.errors import CorruptLog
from buoy.ports.records import Broken
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.numbered import NumberedObjects
from buoy.stores.unreadable import broken


class ObjectSchedules:
    """The schedules of one object store."""

    def __init__(self, bucket: Bucket, changed: Callable[[str], Awaitable[None]]) -> None:
        self._bucket = bucket
        self._changed = changed
        self._records = NumberedObjects(bucket, Schedule)

    async def schedules(self) -> list[Schedule]:
        return [one for one in await self._all() if isinstance(one, Schedule)]

    async def broken(self) -> list[Broken]:
        return [one for one in await self._all() if isinstance(one, Broken)]

    async def discard_broken(self, name: str) -> bool:
        key = layout.schedule_key(check_run_id(name))
        if not isinstance(await self._look(key), Broken):
            return False
        await self._bucket.delete(key)
        return True

    async def _all(self) -> list[Schedule | Broken]:
        found = await each(await self._bucket.list(layout.SCHEDULES), self._look)
        return [one for one in found if one is not None]

    async def _look(self, key: str) -> Schedule | Broken | None:
        name = layout.schedule_of(key)
        if name is None:
            return None
        try:
            return await self._records.get(key)
        except CorruptLog as error:
            return broken("schedule", name, key, error)

    async def save_schedule(self, schedule: Schedule) -> bool:
        if not await self._records.save(layout.schedule_key(check_run_id(schedule.name)), schedule):
            return False
        await self._changed(f"schedule {schedule.name} {schedule.number}")
        return True
