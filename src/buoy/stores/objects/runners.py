"""Runners in objects: one record each, changed by compare-and-swap only, so that a beat and a verdict cannot both win.

Invariants: gone is final. `living/` is an index of those that are not gone: written before the record, removed after
the verdict. `gone/` is an index of the others, the newest first: written before the verdict, with its time. So a look
reads the living and as many of the gone as it asks for, whoever ran before them; it removes nothing. A record that
cannot be read proves nothing about its runner, which counts as living until its death is proven; the verdict is then
written in place of what is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import RunnerId, check_run_id
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, Unavailable, WrongState
from buoy.ports.host import Clock
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.index import Index, each
from buoy.stores.objects.records import RunnerObject
from buoy.stores.unreadable import decoded, nameless

TRIES_MAX = 20
# A runner that was seen living so lately is not looked at again before it claims; what it took is checked after.
LATELY_S = 30.0

Standing: TypeAlias = Literal["living", "gone", "unregistered"]
_WHY_NOT: dict[Standing, str | None] = {"living": None, "gone": "is gone", "unregistered": "is not registered"}

_OBJECTS = msgspec.json.Decoder(RunnerObject)


class Runners:
    """Registers, beats and verdicts."""

    def __init__(self, bucket: Bucket, index: Index, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._clock = clock
        # Only to spare the read before a beat.
        self._last: dict[RunnerId, tuple[RunnerObject, str]] = {}
        self._lived_at: dict[RunnerId, float] = {}

    async def register(self, info: RunnerInfo) -> None:
        check_run_id(info.id)
        entries = [(layout.living_key(info.id), b"{}")]
        since = await self._index.add(entries)
        await self._index.refresh(entries, since)
        now = StoreTime(self._clock.now())
        first = RunnerObject(1, RunnerRecord(info=info, registered_at=now, beat_at=now, beat=Beat(number=0)))
        try:
            etag = await self._bucket.create(layout.runner_key(info.id), msgspec.json.encode(first))
        except Exists:
            if not await self._change(info.id, info=info, suspected_at=None, suspected_beat=None):
                raise WrongState(f"runner {info.id} was declared gone; register under a new id") from None
        else:
            self._last[info.id] = (first, etag)
            self._lived_at[info.id] = self._clock.monotonic()

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        return await self._change(runner, beat=beat, beat_at=self._clock.now(), suspected_at=None, suspected_beat=None)

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        known = await self._beating(runner, beat_number)
        if known is None or known.suspected_beat == beat_number:
            return known
        await self._change(runner, beat_number, suspected_at=self._clock.now(), suspected_beat=beat_number)
        return await self._beating(runner, beat_number)

    async def _beating(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        """The runner, if it is not gone and its last beat is that one."""
        found = await self._read(runner)
        return found[0].record if found is not None and _still(found[0].record, beat_number) else None

    async def declare_gone(self, runner: RunnerId, why: str, beat_number: int | None = None) -> bool:
        """False if it has beaten since `beat_number`."""
        now = self._clock.now()
        entry = layout.gone_key(runner, now)
        since = await self._index.add([(entry, b"{}")])
        await self._index.refresh([(entry, b"{}")], since)
        try:
            changed = await self._change(runner, beat_number, gone_at=now, gone_why=why)
        except CorruptLog as error:
            changed = await self._write_off(runner, why, now, error)
        if not changed and await self.gone_entry(runner) != entry:
            await self._index.drop([entry])
        if not changed and beat_number is not None and await self.why_not_living(runner) is None:
            return False
        self._last.pop(runner, None)
        await self._index.drop([layout.living_key(runner)])
        return True

    async def gone_entry(self, runner: RunnerId) -> str | None:
        """Its entry in `gone/`, as its record says; None: it is not gone, or has no record that can be read."""
        try:
            found = await self._read(runner)
        except CorruptLog:
            return None
        gone_at = None if found is None else found[0].record.gone_at
        return None if gone_at is None else layout.gone_key(runner, float(gone_at))

    async def _write_off(self, runner: RunnerId, why: str, now: float, error: CorruptLog) -> bool:
        """A verdict in place of a record that cannot be read. False: somebody wrote it meanwhile."""
        key = layout.runner_key(runner)
        found = await self._bucket.get(key)
        stands = nameless(runner, str(error))
        record = msgspec.structs.replace(stands, registered_at=now, beat_at=now, gone_at=now, gone_why=why)
        try:
            if found is not None:
                await self._bucket.replace(key, msgspec.json.encode(RunnerObject(1, record)), found[1])
        except Changed:
            return False
        return True

    async def _change(self, runner: RunnerId, beat_number: int | None = None, **fields: object) -> bool:
        """Changes the record of a runner that is not gone, or whose last beat is that one. False if it is not so."""
        mine = known = self._last.pop(runner, None)
        if beat_number is not None:
            # What is remembered may be older than what the caller saw.
            mine = known = None
        for _ in range(TRIES_MAX):
            known = known or await self._read_or(runner, mine)
            if known is None or not _still(known[0].record, beat_number):
                return False
            changed = RunnerObject(known[0].counter + 1, msgspec.structs.replace(known[0].record, **fields))
            try:
                etag = await self._bucket.replace(layout.runner_key(runner), msgspec.json.encode(changed), known[1])
            except Changed:
                known = None
                continue
            self._last[runner] = (changed, etag)
            return True
        raise Unavailable(f"the record of runner {runner} is changed by others all the time; try again")

    async def _read(self, runner: RunnerId) -> tuple[RunnerObject, str] | None:
        key = layout.runner_key(runner)
        found = await self._bucket.get(key)
        return None if found is None else (decoded(_OBJECTS.decode, found[0], key), found[1])

    async def _read_or(
        self, runner: RunnerId, mine: tuple[RunnerObject, str] | None
    ) -> tuple[RunnerObject, str] | None:
        """The record. If it was damaged, its own runner, which remembers it, writes it again with the next beat."""
        try:
            return await self._read(runner)
        except CorruptLog:
            found = None if mine is None else await self._bucket.get(layout.runner_key(runner))
            if mine is None or found is None:
                raise
            return mine[0], found[1]

    async def standing(self, runner: RunnerId) -> Standing:
        """Who cannot be read counts as living."""
        try:
            found = await self._read(runner)
        except CorruptLog:
            return "living"
        if found is None:
            return "unregistered"
        return "living" if found[0].record.gone_at is None else "gone"

    async def why_not_living(self, runner: RunnerId) -> str | None:
        """None for a runner that is registered and not gone, so far as can be read."""
        why = _WHY_NOT[await self.standing(runner)]
        if runner in self._lived_at:
            self._lived_at[runner] = self._clock.monotonic() if why is None else -math.inf
        return why

    async def lives(self, runner: RunnerId) -> bool:
        """As `why_not_living`, without a look at a runner of this process that was seen living a moment ago."""
        lately = self._clock.monotonic() - self._lived_at.get(runner, -math.inf) <= LATELY_S
        return lately or await self.why_not_living(runner) is None

    async def all(self, gone: int = 0) -> list[RunnerRecord]:
        """The living, then the newest `gone` of the others. The gone are listed first: so none is missed that goes."""
        entries = await self._bucket.list(layout.GONE, limit=gone) if gone > 0 else []
        found = await self._records(await self.names(layout.LIVING))
        living = sorted((one for one in found if one.gone_at is None), key=_since)
        # One that went between the two listings stands in none of the entries, and is known all the same.
        went = [one for one in found if one.gone_at is not None] if gone > 0 else []
        listed = {one.info.id for one in found}
        names = {name for key in entries if (name := layout.runner_of(key)) is not None}
        dead = [one for one in await self._records(sorted(names - listed)) if one.gone_at is not None]
        return living + sorted(dead + went, key=_gone, reverse=True)[:gone]

    async def living(self, runners: Iterable[RunnerId]) -> set[RunnerId]:
        """Those of these runners that are registered and not gone, so far as can be read."""
        names = sorted(runners)
        standings = await each(names, self.standing)
        return {name for name, standing in zip(names, standings, strict=True) if standing == "living"}

    async def unregistered(self) -> list[RunnerId]:
        """Those whose entry stands in `living/` and who have no record."""
        names = await self.names(layout.LIVING)
        there = await each(names, lambda runner: self._bucket.get(layout.runner_key(runner)))
        return [runner for runner, found in zip(names, there, strict=True) if found is None]

    async def names(self, prefix: str) -> list[RunnerId]:
        return [name for key in await self._bucket.list(prefix) if (name := layout.runner_of(key)) is not None]

    async def _records(self, names: list[RunnerId]) -> list[RunnerRecord]:
        found = await each(names, self._record)
        return [record for record in found if record is not None]

    async def _record(self, runner: RunnerId) -> RunnerRecord | None:
        try:
            found = await self._read(runner)
        except CorruptLog as error:
            return nameless(runner, str(error))
        return None if found is None else found[0].record


def _since(record: RunnerRecord) -> float:
    return float(record.registered_at)


def _gone(record: RunnerRecord) -> float:
    return 0.0 if record.gone_at is None else float(record.gone_at)


def _still(record: RunnerRecord, beat_number: int | None) -> bool:
    return record.gone_at is None and beat_number in (None, record.beat.number)
