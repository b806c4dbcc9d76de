"""Logs in objects: the commits of a run, read by their numbers.

Invariants: the numbers have no gaps, and a reader follows them: a listing may miss what is written while it is made. A
commit that is listed and not there is an error, unless the run is purged. Long logs are read by segments where there
are some; what a segment does not give is read commit by commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from buoy.core.ids import RunId, check_run_id
from buoy.core.log.codec import decode_events
from buoy.core.log.events import Event
from buoy.errors import CorruptLog
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.records import LogObject
from buoy.stores.objects.segments import SEGMENT_COMMITS, Segment, Segments
from buoy.stores.unreadable import decoded

_LOGS = msgspec.json.Decoder(LogObject)


class Logs:
    """Reads logs. `head_seq_of`: the number of a run's last event; 0 if there is no such run."""

    def __init__(self, bucket: Bucket, segments: Segments, head_seq_of: Callable[[RunId], Awaitable[int]]) -> None:
        self._bucket = bucket
        self.segments = segments
        self._head_seq_of = head_seq_of

    async def log_object(self, run_id: RunId, first_seq: int) -> LogObject | None:
        key = layout.log_key(run_id, first_seq)
        found = await self._bucket.get(key)
        if found is None:
            return None
        return decoded(_LOGS.decode, found[0], key)

    async def purged(self, run_id: RunId) -> bool:
        """Whether a purge of the run has started. Its log begins with a tombstone before anything of it is removed."""
        first = await self.log_object(run_id, 1)
        return first is not None and first.purged is not None

    async def has_tombstone(self, run_id: RunId) -> bool:
        """As `purged`; what cannot be read at the first place of the log is no tombstone."""
        try:
            return await self.purged(run_id)
        except CorruptLog:
            return False

    async def events(self, run_id: RunId, after: int, limit: int | None) -> list[Event]:
        """The events after that number; none if the run is purged during the read."""
        try:
            return await self._read_events(run_id, after, limit)
        except CorruptLog:
            if await self.purged(run_id):
                return []
            raise

    async def _read_events(self, run_id: RunId, after: int, limit: int | None) -> list[Event]:
        """Follows the numbers: a listing may miss what is written during it. Reads no commit beyond the limit."""
        listed = await self._firsts(run_id, after, limit)
        firsts = listed if limit is None else [first for first in listed if first <= after + limit]
        found: list[Event] = []
        for part in await self.segments.plan(run_id, firsts):
            more = await self.segments.read(run_id, part) if isinstance(part, Segment) else None
            if more is None:
                more = await self._loose(run_id, part.firsts, after, limit, found)
            if more is None:
                return []
            found += more
        if limit is not None and len(firsts) < len(listed) and found and found[-1].seq < after + limit:
            # The listing missed a commit that is within the limit: the next one that it has is not.
            found += await self._between(run_id, found[-1].seq + 1, listed[len(firsts)])
        begin = next((place for place, event in enumerate(found) if event.seq > after), len(found))
        return found[begin:] if limit is None else found[begin : begin + limit]

    async def _loose(
        self, run_id: RunId, firsts: Sequence[int], after: int, limit: int | None, before: list[Event]
    ) -> list[Event] | None:
        """The events of these commits, after those of `before`; None: the run is purged."""
        found: list[Event] = []
        for begin in range(0, len(firsts), 64):
            chunk = firsts[begin : begin + 64]
            for first, log in zip(chunk, await each(chunk, lambda seq: self.log_object(run_id, seq)), strict=True):
                if log is None:
                    raise CorruptLog(f"the log of {run_id} has lost the commit that began with event {first}")
                if log.purged is not None:
                    return None
                last = found or before
                expected = last[-1].seq + 1 if last else first
                if first != expected:
                    found += await self._between(run_id, expected, first)
                found += await self._events_of(run_id, log, after, limit)
                if len(firsts) > SEGMENT_COMMITS:
                    self.segments.met(run_id, log, first)
        return found

    async def _events_of(self, run_id: RunId, log: LogObject, after: int, limit: int | None) -> list[Event]:
        """One commit's events. Of a log that was imported only the parts that are asked for."""
        where = f"the log of {run_id}"
        found = decode_events(log.events, where)
        if not log.parts:
            return found
        ends = [first - 1 for first in (*log.parts[1:], log.last_seq + 1)]
        wanted = [
            first
            for first, last in zip(log.parts, ends, strict=True)
            if last > after and (limit is None or first <= after + limit)
        ]
        keys = [layout.part_key(run_id, log.copy, first) for first in wanted]
        for key, part in zip(keys, await each(keys, self._bucket.get), strict=True):
            if part is None:
                raise CorruptLog(f"{key} is missing, though the log refers to it")
            found += decode_events(part[0], where)
        return found

    async def _firsts(self, run_id: RunId, after: int, limit: int | None) -> list[int]:
        """The first numbers of the commits that hold so many events after that one, and of one commit more."""
        check_run_id(run_id)
        later = await self.commits(run_id, after, None if limit is None else limit + 1)
        if later and later[0] == after + 1:
            return later
        if not later and await self._head_seq_of(run_id) <= after:
            return []
        # `after` is no last event of a commit, so far as we know: look for the commit that it is in.
        firsts = await self.commits(run_id)
        inside = [first for first in firsts if first <= after + 1]
        return firsts[max(len(inside) - 1, 0) :]

    async def commits(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[int]:
        """The first numbers of the commits that begin after that one, at most that many."""
        prefix = layout.log_prefix(run_id)
        keys = await self._bucket.list(prefix, after=layout.log_key(run_id, after), limit=limit)
        return layout.numbers_of(keys, prefix)

    async def last_commit(self, run_id: RunId) -> LogObject | None:
        """The last commit of a log, whatever is there; None: there is no log."""
        firsts = await self.commits(check_run_id(run_id))
        return await self.log_object(run_id, firsts[-1]) if firsts else None

    async def _between(self, run_id: RunId, first: int, end: int) -> list[Event]:
        """Commits that a listing left out."""
        found: list[Event] = []
        while first < end:
            log = await self.log_object(run_id, first)
            if log is None:
                raise CorruptLog(f"the log of {run_id} has no event {first}, though it has event {end}")
            found += await self._events_of(run_id, log, 0, None)
            first = log.last_seq + 1
        return found
