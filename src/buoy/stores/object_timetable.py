"""Schedules in objects: one each, by create-if-absent and compare-and-swap. The number makes every body its own."""

from __future__ import annotations

import msgspec

from buoy.core.ids import check_run_id
from buoy.core.schedule import Schedule
from buoy.errors import CorruptLog, Unavailable
from buoy.stores import layout
from buoy.stores.bucket import Bucket, Changed, Exists
from buoy.stores.object_index import each

_SCHEDULES = msgspec.json.Decoder(Schedule)


class ObjectTimetable:
    """The timetable of one object store."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def schedules(self) -> list[Schedule]:
        found = await each(await self._bucket.list(layout.SCHEDULES), self._get)
        return [schedule for schedule, _ in (pair for pair in found if pair is not None)]

    async def _get(self, key: str) -> tuple[Schedule, str] | None:
        found = await self._bucket.get(key)
        if found is None:
            return None
        try:
            return _SCHEDULES.decode(found[0]), found[1]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptLog(f"{key} cannot be read: {error}") from error

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
        return True
