"""Segments: the events of 256 commits of a run in one object, so that a long log is read by few requests.

Invariants: a segment is only ever added, after all of its commits were confirmed; the commits stay, and they alone are
the log: appends, fences and read-backs never look at a segment. A reader uses a segment only where a commit begins at
its first number and another one right behind its last. A segment that is missing, damaged or incomplete is passed over,
and its commits are read instead; a read that fails without a clear answer raises, as any other.
The owner writes segments, out of what it wrote or read itself: that costs one PUT for 256 commits and no read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.codec import decode_events
from buoy.core.log.events import Event
from buoy.errors import CorruptLog, StoreUnusable, Unavailable
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Exists
from buoy.stores.objects.index.entries import Index
from buoy.stores.objects.records import LogObject

SEGMENT_COMMITS = 256
# A segment of large commits ends earlier, so that it can be read in one piece.
SEGMENT_BYTES_MAX = 8 * 1024 * 1024
# What is kept in memory for segments to come, of all runs together; then the runs kept longest go without.
KEPT_BYTES_MAX = 64 * 1024 * 1024
_SEGMENT = re.compile(r"([0-9]{12,18})-([0-9]{12,18})\.json")


class Segment(NamedTuple):
    """A segment, and the first numbers of the commits in it."""

    first: int
    last: int
    firsts: Sequence[int]


class Loose(NamedTuple):
    """Commits that are read one by one."""

    firsts: Sequence[int]


class _Piece(NamedTuple):
    first: int
    last: int
    data: bytes


class Segments:
    """Writes and reads segments."""

    def __init__(self, bucket: Bucket, index: Index) -> None:
        self._bucket = bucket
        self._index = index
        self._kept: dict[RunId, list[_Piece]] = {}
        self._bytes = 0

    # ---- reading

    async def plan(self, run_id: RunId, firsts: list[int]) -> list[Segment | Loose]:
        """How to read these commits. A short log has no segments, so none are looked for."""
        if len(firsts) <= SEGMENT_COMMITS:
            return [Loose(firsts)] if firsts else []
        places = {first: place for place, first in enumerate(firsts)}
        plan: list[Segment | Loose] = []
        begin = 0
        for first, last in await self._spans(run_id):
            place, end = places.get(first, -1), places.get(last + 1, -1)
            if place < begin or end <= place:
                continue
            plan += [Loose(firsts[begin:place])] if place > begin else []
            plan.append(Segment(first, last, firsts[place:end]))
            begin = end
        return [*plan, Loose(firsts[begin:])]

    async def _spans(self, run_id: RunId) -> list[tuple[int, int]]:
        keys = await self._bucket.list(segments_prefix(run_id))
        return sorted(span for key in keys if (span := segment_of(key, run_id)) is not None)

    async def read(self, run_id: RunId, segment: Segment) -> list[Event] | None:
        """The events of a segment; None: its commits have to be read."""
        key = segment_key(run_id, segment.first, segment.last)
        try:
            found = await self._bucket.get(key)
            events = [] if found is None else decode_events(found[0], key)
        except CorruptLog:
            return None
        whole = [event.seq for event in events] == list(range(segment.first, segment.last + 1))
        return events if whole else None

    # ---- writing

    def met(self, run_id: RunId, log: LogObject, first: int) -> None:
        """A commit of a long log that was read alone. Its reader may be the next owner, who then writes the segment."""
        if not log.parts:
            self._keep(run_id, _Piece(first, log.last_seq, bytes(log.events)))

    async def committed(self, run_id: RunId, log: LogObject, first: int) -> None:
        """A commit of this process that is confirmed. Writes at most one segment."""
        self._keep(run_id, _Piece(first, log.last_seq, bytes(log.events)))
        if log.task.kind != "held":
            self._forget(run_id)
            return
        kept = self._kept.get(run_id, [])
        number = _full(kept)
        if not number:
            return
        done, rest = kept[:number], kept[number:]
        self._kept[run_id] = rest
        self._bytes -= sum(len(piece.data) for piece in done)
        try:
            await self._bucket.create(segment_key(run_id, done[0].first, done[-1].last), _joined(done))
        except Exists:
            return  # another owner wrote the same events
        except (Unavailable, StoreUnusable) as error:
            self._index.note(error)

    def _keep(self, run_id: RunId, piece: _Piece) -> None:
        kept = self._kept.pop(run_id, [])
        if kept and kept[-1].last + 1 != piece.first:
            if kept[0].first <= piece.first <= kept[-1].last:
                self._kept[run_id] = kept  # it was read before
                return
            self._bytes -= sum(len(one.data) for one in kept)
            kept = []
        self._kept[run_id] = kept
        kept.append(piece)
        self._bytes += len(piece.data)
        while self._bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, run_id: RunId) -> None:
        self._bytes -= sum(len(piece.data) for piece in self._kept.pop(run_id, []))


def _full(pieces: list[_Piece]) -> int:
    """How many of the pieces make a segment; 0: there are too few yet."""
    size = 0
    for number, piece in enumerate(pieces, 1):
        size += len(piece.data)
        if number == SEGMENT_COMMITS or size >= SEGMENT_BYTES_MAX:
            return number
    return 0


def _joined(pieces: list[_Piece]) -> bytes:
    """One list of all events, out of the lists of the commits."""
    lists = [msgspec.json.decode(piece.data, type=list[msgspec.Raw]) for piece in pieces]
    return msgspec.json.encode([event for events in lists for event in events])


def segments_prefix(run_id: RunId) -> str:
    return f"{layout.run_prefix(run_id)}seg/"


def segment_key(run_id: RunId, first_seq: int, last_seq: int) -> str:
    return f"{segments_prefix(run_id)}{first_seq:012}-{last_seq:012}.json"


def segment_of(key: str, run_id: RunId) -> tuple[int, int] | None:
    """The first and the last number of a segment of that run; None: the key is none."""
    found = _SEGMENT.fullmatch(key.removeprefix(segments_prefix(run_id)))
    return None if found is None else (int(found[1]), int(found[2]))
