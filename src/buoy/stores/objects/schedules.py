"""Schedules in objects: one each, by create-if-absent and compare-and-swap. The number makes every body its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from buoy.core.ids import check_run_id
from buoy.core.schedule.schedule import Schedule
from buoy.errors import CorruptLog, Unavailable
from buoy.ports.records import Broken
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.index import each
from buoy.stores.unreadable import broken, decoded

_SCHEDULES = msgspec.json.Decoder(Schedule)


class ObjectTimetable:
    """The timetable of one object store."""

    def __init__(self, bucket: Bucket, changed: Callable[[str], Awaitable[None]]) -> None:
        self._bucket = bucket
        self._changed = changed

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
            found = await self._get(key)
        except CorruptLog as error:
            return broken("schedule", name, key, error)
        return None if found is None else found[0]

    async def _get(self, key: str) -> tuple[Schedule, str] | None:
        found = await self._bucket.get(key)
        if found is None:
            return None
        return decoded(_SCHEDULES.decode, found[0], key), found[1]

    async def save_schedule(self, schedule: Schedule) -> bool:
        key = layout.schedule_key(check_run_id(schedule.name))
        data = msgspec.json.encode(schedule)
        there = await self._get(key)
        if (0 if there is None else there[0].number) != schedule.number - 1:
            return False
        try:
            await (self._bucket.create(key, data) if there is None else self._bucket.replace(key, data, there[1]))
        except (Exists, Changed):
            return False
        except Unavailable:
            # Law 2: read back before concluding anything. Two savers of one number write different bodies or the same.
            now = await self._get(key)
            if now is None or now[0].number < schedule.number:
                raise
            return now[0] == schedule
        await self._changed(f"schedule {schedule.name} {schedule.number}")
        return True
