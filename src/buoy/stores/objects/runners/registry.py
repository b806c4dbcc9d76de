"""Runners in objects: one record each, changed by compare-and-swap only, so that a beat and a verdict cannot both win.

Invariants: gone is final. While a runner lives its record is in `living/`, so that one listing with etags shows
which runners have beaten since the last look. The verdict is a change of that record; after it a copy goes to
`runners/`, which keeps the id taken, and then the entry leaves `living/`. `gone/` is an index of the gone, the newest
first: written before the verdict, with its time. So a look costs what the living and the wanted part of the gone cost.
A record that cannot be read proves nothing about its runner, which counts as living until its death is proven; the
verdict is then written in place of what is there, with a copy of it.
Stores of an earlier release have an empty entry in `living/` and the record of a living runner in `runners/`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from buoy.core.ids import RunnerId, check_run_id
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, StoreUnusable, Unavailable, WrongState
from buoy.ports.host import Clock
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.records import RunnerObject
from buoy.stores.objects.runners import keys as runner_keys
from buoy.stores.objects.runners.fleet import ListedRunners
from buoy.stores.unreadable import decoded, nameless

TRIES_MAX = 20
# A runner that was seen living so lately is not looked at again before it claims; what it took is checked after.
LATELY_S = 30.0

Standing: TypeAlias = Literal["living", "gone", "unregistered"]
_WHY_NOT: dict[Standing, str | None] = {"living": None, "gone": "is gone", "unregistered": "is not registered"}

_OBJECTS = msgspec.json.Decoder(RunnerObject)
# The whole entry of a living runner in stores of an earlier release.
_EMPTY = b"{}"


class Located(NamedTuple):
    """A record, the version of it, and where it stands."""

    object: RunnerObject
    etag: str
    key: str


class Runners:
    """Registers, beats and verdicts."""

    def __init__(self, bucket: Bucket, index: Index, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._clock = clock
        # Only to spare the read before a beat.
        self._last: dict[RunnerId, Located] = {}
        self._lived_at: dict[RunnerId, float] = {}
        self.fleet = ListedRunners(bucket, clock, self._listed)

    async def register(self, info: RunnerInfo) -> None:
        key = runner_keys.living_key(RunnerId(check_run_id(info.id)))
        now = StoreTime(self._clock.now())
        first = RunnerObject(1, RunnerRecord(info=info, registered_at=now, beat_at=now, beat=Beat(number=0)))
        try:
            etag = await self._bucket.create(key, msgspec.json.encode(first))
        except Exists:
            if not await self._change(info.id, info=info, suspected_at=None, suspected_beat=None):
                raise _gone_for_good(info.id) from None
            return
        # Read after the create: this id may have been declared dead in between.
        if await self._bucket.get(runner_keys.runner_key(info.id)) is not None:
            await self._take_back(info.id)
        self._last[info.id] = Located(first, etag, key)
        self._lived_at[info.id] = self._clock.monotonic()

    async def _take_back(self, runner: RunnerId) -> None:
        """Removes the entry of a registration if the id is taken for good. An earlier release kept the living there."""
        found = await self._get(runner_keys.runner_key(runner))
        if found is not None and found.object.record.gone_at is not None:
            await self._bucket.delete(runner_keys.living_key(runner))
            raise _gone_for_good(runner)

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
        return found.object.record if found is not None and _still(found.object.record, beat_number) else None

    async def declare_gone(self, runner: RunnerId, why: str, beat_number: int | None = None) -> bool:
        """False if it has beaten since `beat_number`."""
        now = self._clock.now()
        entry = runner_keys.gone_key(runner, now)
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
        return await self.retire_record(runner)

    async def retire_record(self, runner: RunnerId) -> bool:
        """Moves the record of a runner that is gone from `living/` to `runners/`. False: it is not gone.

        What fails here is a leftover: the verdict stands, and the next retirement ends the move.
        """
        key = runner_keys.living_key(runner)
        try:
            found = await self._bucket.get(key)
            if found is None:
                return True
            if found[0] != _EMPTY:
                if decoded(_OBJECTS.decode, found[0], key).record.gone_at is None:
                    return False
                with suppress(Exists):
                    await self._bucket.create(runner_keys.runner_key(runner), found[0])
            await self._index.drop([key])
        except (Unavailable, StoreUnusable) as error:
            self._index.note(error)
        return True

    async def gone_entry(self, runner: RunnerId) -> str | None:
        """Its entry in `gone/`, as its record says; None: it is not gone, or has no record that can be read."""
        try:
            retired = await self._get(runner_keys.runner_key(runner))
            found = retired or await self._get(runner_keys.living_key(runner))
        except CorruptLog:
            return None
        gone_at = None if found is None else found.object.record.gone_at
        return None if gone_at is None else runner_keys.gone_key(runner, float(gone_at))

    async def _write_off(self, runner: RunnerId, why: str, now: float, error: CorruptLog) -> bool:
        """A verdict in place of a record that cannot be read. False: the record was written again in between."""
        stands = nameless(runner, str(error))
        record = msgspec.structs.replace(stands, registered_at=now, beat_at=now, gone_at=now, gone_why=why)
        for key in (runner_keys.living_key(runner), runner_keys.runner_key(runner)):
            found = await self._bucket.get(key)
            if found is None or found[0] == _EMPTY:
                continue
            try:
                await self._bucket.replace(key, msgspec.json.encode(RunnerObject(1, record, found[0])), found[1])
            except Changed:
                return False
            return True
        return True

    async def _change(self, runner: RunnerId, beat_number: int | None = None, **fields: object) -> bool:
        """Changes the record of a runner that is not gone, or whose last beat is that one. False if it is not so."""
        mine = known = self._last.pop(runner, None)
        if beat_number is not None:
            # What is remembered may be older than what the caller saw.
            mine = known = None
        for _ in range(TRIES_MAX):
            known = known or await self._read_or(runner, mine)
            if known is None or not _still(known.object.record, beat_number):
                return False
            record = msgspec.structs.replace(known.object.record, **fields)
            changed = RunnerObject(known.object.counter + 1, record)
            try:
                etag = await self._bucket.replace(known.key, msgspec.json.encode(changed), known.etag)
            except Changed:
                known = None
                continue
            self._last[runner] = Located(changed, etag, known.key)
            return True
        raise Unavailable(f"the record of runner {runner} is changed by others all the time; try again")

    async def _read(self, runner: RunnerId) -> Located | None:
        """The record, wherever it stands. `living/` is read first: a retirement copies before it removes."""
        living = await self._get(runner_keys.living_key(runner))
        return living or await self._get(runner_keys.runner_key(runner))

    async def _get(self, key: str) -> Located | None:
        found = await self._bucket.get(key)
        if found is None or found[0] == _EMPTY:
            return None
        return Located(decoded(_OBJECTS.decode, found[0], key), found[1], key)

    async def _read_or(self, runner: RunnerId, mine: Located | None) -> Located | None:
        """The record. If it was damaged, its own runner, which remembers it, writes it again with the next beat."""
        try:
            return await self._read(runner)
        except CorruptLog:
            found = None if mine is None else await self._bucket.get(mine.key)
            if mine is None or found is None:
                raise
            return mine._replace(etag=found[1])

    async def standing(self, runner: RunnerId) -> Standing:
        """A runner whose record cannot be read counts as living."""
        try:
            found = await self._read(runner)
        except CorruptLog:
            return "living"
        if found is None:
            return "unregistered"
        return "living" if found.object.record.gone_at is None else "gone"

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

    async def all(self, gone: int = 0, *, glance: bool = False) -> list[RunnerRecord]:
        """The living, then the newest `gone` of the others. The gone are listed first: so none is missed that goes."""
        entries = await self._bucket.list(layout.GONE, limit=gone) if gone > 0 else []
        found = [one for one in (await self.fleet.look(glance=glance)).values() if one is not None]
        living = sorted((one for one in found if one.gone_at is None), key=_since)
        # One that went between the two listings is in none of the entries, and is known anyway.
        went = [one for one in found if one.gone_at is not None] if gone > 0 else []
        listed = {one.info.id for one in found}
        names = {name for key in entries if (name := runner_keys.runner_of(key)) is not None}
        others = await each(sorted(names - listed), self._retired)
        dead = [one for one in others if one is not None and one.gone_at is not None]
        return living + sorted(dead + went, key=_gone, reverse=True)[:gone]

    async def beats(self) -> dict[RunnerId, int]:
        """The number of the last beat of each living runner."""
        return {record.info.id: record.beat.number for record in await self.all()}

    async def living(self, runners: Iterable[RunnerId]) -> set[RunnerId]:
        """Those of these runners that are registered and not gone, so far as can be read."""
        names = sorted(runners)
        standings = await each(names, self.standing)
        return {name for name, standing in zip(names, standings, strict=True) if standing == "living"}

    async def unregistered(self) -> list[RunnerId]:
        """Those whose entry is in `living/` and who have no record: an earlier release wrote the entry first."""
        return [runner for runner, record in (await self.fleet.look(glance=True)).items() if record is None]

    async def _listed(self, runner: RunnerId) -> tuple[RunnerRecord | None, bool]:
        """The record of a listed runner, and whether its changes show in the listing."""
        try:
            found = await self._read(runner)
        except CorruptLog as error:
            return nameless(runner, str(error)), False
        return (None, False) if found is None else (found.object.record, found.key == runner_keys.living_key(runner))

    async def _retired(self, runner: RunnerId) -> RunnerRecord | None:
        """The record of a runner in `gone/`, which has left `living/` if its retirement has ended."""
        try:
            found = await self._get(runner_keys.runner_key(runner)) or await self._read(runner)
        except CorruptLog as error:
            return nameless(runner, str(error))
        return None if found is None else found.object.record


def _gone_for_good(runner: RunnerId) -> WrongState:
    return WrongState(f"runner {runner} was declared gone; register under a new id")


def _since(record: RunnerRecord) -> float:
    return float(record.registered_at)


def _gone(record: RunnerRecord) -> float:
    return 0.0 if record.gone_at is None else float(record.gone_at)


def _still(record: RunnerRecord, beat_number: int | None) -> bool:
    return record.gone_at is None and beat_number in (None, record.beat.number)
