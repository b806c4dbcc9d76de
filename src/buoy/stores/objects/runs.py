"""Runs in objects: how one is read, and how its task is changed without a commit.

Invariants: `load` gives the true document and task, however far `state.json` lags behind: the last commit's object
holds both. `move` is one compare-and-swap: of many movers of a task one wins. The index entry of a task's new state is
written before, that of its old state removed after.
"""

from __future__ import annotations

import math

import msgspec

from buoy.core.ids import RunId, check_run_id
from buoy.core.log.codec import decode_events
from buoy.core.log.document import Document
from buoy.core.log.document import document as document_of
from buoy.core.log.events import Event
from buoy.core.log.state import fold
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Broken, RunRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.inbox_ends import InboxEnds
from buoy.stores.objects.index import Entry, Index, each
from buoy.stores.objects.records import (
    LogObject,
    StateObject,
    StoredRun,
    TaskState,
    entry_of,
    merged,
    passed,
    record_of,
    saved_view,
    state_object,
)
from buoy.stores.unreadable import GARBLED, UNREADABLE, Met, broken, decoded

# Runs of which this process remembers what it last saw: those that it drives, and then some.
KNOWN_MAX = 20_000
# What was seen longer ago is looked at again before it is written over. Longer than any step that is not long anyway.
LATELY_S = 30.0

_STATES = msgspec.json.Decoder(StateObject)
_LOGS = msgspec.json.Decoder(LogObject)
_DOCUMENTS = msgspec.json.Decoder(Document)


class Runs:
    """Reads runs, and remembers them to save reads. What is remembered is never trusted where it decides anything."""

    def __init__(self, bucket: Bucket, index: Index, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._clock = clock
        self.met = Met()
        self.inbox_ends = InboxEnds(bucket)
        self._known: dict[RunId, StoredRun] = {}
        self._known_at: dict[RunId, float] = {}
        # What owners in this process looked at; durable with their next commit or release.
        self.seen: dict[RunId, int] = {}

    def known(self, run_id: RunId) -> StoredRun | None:
        return self._known.get(run_id)

    def known_lately(self, run_id: RunId) -> StoredRun | None:
        """The view that a writer may use without a look. After a long sleep its run may be purged, its place free."""
        lately = self._clock.monotonic() - self._known_at.get(run_id, -math.inf) <= LATELY_S
        return self._known.get(run_id) if lately else None

    def remember(self, view: StoredRun, *, read: bool = True) -> StoredRun:
        """Adds what was just read or written. What was read of `state.json` counts, even if it seems to be older."""
        old = self._known.pop(view.run_id, None)
        if old is not None:
            view = merged(old, view, state=view if read or view.counter >= old.counter else old)
        elif len(self._known) >= KNOWN_MAX:
            self._forget(next(iter(self._known)))
        self._known[view.run_id] = view
        self._known_at[view.run_id] = self._clock.monotonic()
        return view

    def _forget(self, run_id: RunId) -> None:
        self._known.pop(run_id, None)
        self._known_at.pop(run_id, None)

    async def look(self, run_id: RunId) -> StoredRun | Broken | None:
        """As `load`, for those who look at many runs: one that cannot be read is told as such, and is not absent."""
        try:
            return await self.load(run_id)
        except UNREADABLE as error:
            return self.met.note(broken("run", run_id, layout.run_prefix(run_id), error))

    async def load(self, run_id: RunId) -> StoredRun | None:
        """The run as it is now, or None if there is positively none."""
        before = self._known.get(check_run_id(run_id))
        found = await self._bucket.get(layout.state_key(run_id))
        saved = None if found is None else _state(found[0])
        head = 0 if saved is None else saved.head_seq
        firsts = await self._commits(run_id, head)
        etag = None if found is None else found[1]
        if not firsts:
            return None if saved is None or etag is None else self._read(saved_view(run_id, saved, etag), before)
        last = await self.log_object(run_id, firsts[-1])
        if last is None and not await self.purged(run_id):
            raise CorruptLog(f"{layout.log_key(run_id, firsts[-1])} was listed, but is not there")
        if last is None or last.purged is not None:
            self._forget(run_id)
            return None
        document = await self._document(run_id, last)
        view = StoredRun(
            run_id=run_id, head_seq=last.last_seq, document=document, task=last.task, etag=etag, taken_at=last.taken_at
        )
        if saved is not None and etag is not None:
            state = saved_view(run_id, saved, etag)
            view = merged(view, state, state=state)
        return self._read(view, before)

    def _read(self, view: StoredRun, before: StoredRun | None) -> StoredRun:
        """What was read counts, even if more is remembered, which may be lost; unless that was added meanwhile."""
        if self._known.get(view.run_id) is before:
            self._known.pop(view.run_id, None)
        return self.remember(view)

    async def saved(self, run_id: RunId) -> tuple[StateObject | None, str | None]:
        """`state.json` and its etag, whatever the log says. What is remembered of the run is forgotten."""
        self._forget(run_id)
        found = await self._bucket.get(layout.state_key(check_run_id(run_id)))
        return (None, None) if found is None else (_state(found[0]), found[1])

    async def summary(self, run_id: RunId) -> tuple[Document, StoreTime] | None:
        """The document in `state.json` and when the store took it, by one request. It may lag behind the log."""
        try:
            found = await self._bucket.get(layout.state_key(run_id))
        except CorruptLog:
            return None
        saved = None if found is None else _state(found[0])
        return None if saved is None else (saved.document, saved.updated_at)

    async def log_object(self, run_id: RunId, first_seq: int) -> LogObject | None:
        key = layout.log_key(run_id, first_seq)
        found = await self._bucket.get(key)
        if found is None:
            return None
        return decoded(_LOGS.decode, found[0], key)

    async def purged(self, run_id: RunId) -> bool:
        """Whether somebody purges the run, or did. Its log begins with a tombstone before anything of it is removed."""
        first = await self.log_object(run_id, 1)
        return first is not None and first.purged is not None

    async def buried(self, run_id: RunId) -> bool:
        """As `purged`; what cannot be read at the first place of the log is no tombstone."""
        try:
            return await self.purged(run_id)
        except CorruptLog:
            return False

    async def _document(self, run_id: RunId, last: LogObject) -> Document:
        """The document of the last commit; folded anew if another version of Buoy wrote it."""
        try:
            return _DOCUMENTS.decode(last.document)
        except GARBLED:
            return document_of(fold(run_id, await self.events(run_id, 0, None)))

    async def events(self, run_id: RunId, after: int, limit: int | None) -> list[Event]:
        """The events after that number; none of a run that is purged meanwhile."""
        try:
            return await self._read_events(run_id, after, limit)
        except CorruptLog:
            if await self.purged(run_id):
                return []
            raise

    async def _read_events(self, run_id: RunId, after: int, limit: int | None) -> list[Event]:
        """Follows the numbers: a listing may miss what is written meanwhile. Reads no commit beyond the limit."""
        listed = await self._firsts(run_id, after, limit)
        firsts = listed if limit is None else [first for first in listed if first <= after + limit]
        found: list[Event] = []
        for begin in range(0, len(firsts), 64):
            chunk = firsts[begin : begin + 64]
            for first, log in zip(chunk, await each(chunk, lambda seq: self.log_object(run_id, seq)), strict=True):
                if log is None:
                    raise CorruptLog(f"the log of {run_id} has lost the commit that began with event {first}")
                if log.purged is not None:
                    return []
                expected = found[-1].seq + 1 if found else first
                if first != expected:
                    found += await self._between(run_id, expected, first)
                found += await self._events_of(run_id, log, after, limit)
        if limit is not None and len(firsts) < len(listed) and found and found[-1].seq < after + limit:
            # The listing missed a commit that is within the limit: the next one that it has is not.
            found += await self._between(run_id, found[-1].seq + 1, listed[len(firsts)])
        begin = next((place for place, event in enumerate(found) if event.seq > after), len(found))
        return found[begin:] if limit is None else found[begin : begin + limit]

    async def _events_of(self, run_id: RunId, log: LogObject, after: int, limit: int | None) -> list[Event]:
        """One commit's events. Of a log that was brought from elsewhere only the parts that are asked for."""
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
        later = await self._commits(run_id, after, None if limit is None else limit + 1)
        if later and later[0] == after + 1:
            return later
        if not later:
            known = self._known.get(run_id) or await self.load(run_id)
            if known is None or known.head_seq <= after:
                return []
        # `after` is no last event of a commit, so far as we know: look for the commit that it is in.
        firsts = await self._commits(run_id)
        inside = [first for first in firsts if first <= after + 1]
        return firsts[max(len(inside) - 1, 0) :]

    async def _commits(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[int]:
        """The first numbers of the commits that begin after that one, at most so many."""
        prefix = layout.log_prefix(run_id)
        keys = await self._bucket.list(prefix, after=layout.log_key(run_id, after), limit=limit)
        return layout.numbers_of(keys, prefix)

    async def last_commit(self, run_id: RunId) -> LogObject | None:
        """The last commit of a log, whatever stands there; None: there is no log."""
        firsts = await self._commits(check_run_id(run_id))
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

    async def save(self, view: StoredRun) -> StoredRun:
        """Writes `state.json` over exactly the version that `view` was read with. Raises `Changed`."""
        saved = state_object(view)
        data = msgspec.json.encode(saved)
        key = layout.state_key(view.run_id)
        if view.etag is not None:
            return self.remember(saved_view(view.run_id, saved, await self._bucket.replace(key, data, view.etag)))
        try:
            return self.remember(saved_view(view.run_id, saved, await self._bucket.create(key, data)))
        except Exists as error:
            raise Changed(key) from error

    async def move(self, view: StoredRun, task: TaskState) -> StoredRun | None:
        """Gives the run's task its next state; None if somebody else was quicker. Raises Unavailable if unclear."""
        entry = entry_of(view.document, task)
        entries = [] if entry is None else [entry]
        since = await self._index.add(entries)
        await self._index.refresh(entries, since)
        try:
            moved = await self._save_for_sure(msgspec.structs.replace(view, task=task))
        except Changed:
            moved = None
        if moved is None:
            await self._tidy(view.run_id, task, entry)
            return None
        old = entry_of(view.document, view.task)
        await self._index.drop([None if old is None else old[0]])
        return moved

    async def _save_for_sure(self, view: StoredRun) -> StoredRun | None:
        try:
            return await self.save(view)
        except Unavailable:
            # Law 2: read back before concluding anything. A version is one mover's only.
            now = await self.load(view.run_id)
            if now is not None and now.task.version >= view.task.version:
                return now if _same(now.task, view.task) else None
            raise

    async def _tidy(self, run_id: RunId, task: TaskState, entry: Entry | None) -> None:
        """Removes the entry of a lost move, but only if the truth has passed it: another mover may be using it."""
        view = None if entry is None else await self.load(run_id)
        if view is not None and entry is not None and passed(entry[0], task.version, view):
            await self._index.drop([entry[0]])

    async def inbox_head(self, view: StoredRun) -> int:
        """The number of the last message."""
        return await self.inbox_ends.end(view.run_id, view.task.seen)

    async def record(self, view: StoredRun, now: float) -> RunRecord:
        """The run as the port shows it. An unseen message makes a task that nobody holds due at once."""
        return record_of(view, await self.inbox_head(view), now)


def _state(data: bytes) -> StateObject | None:
    """A damaged document loses nothing: the log has all of it."""
    try:
        return _STATES.decode(data)
    except GARBLED:
        return None


def _same(one: TaskState, other: TaskState) -> bool:
    return (one.version, one.kind, one.holder) == (other.version, other.kind, other.holder)
