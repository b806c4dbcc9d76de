"""Runs in objects: how one is read, and how its task is changed without a commit.

Invariants: `load` gives the true document and task, however far `state.json` lags behind: the last commit's object
holds both. `move` is one compare-and-swap: of many movers of a task one wins. The index entry of a task's new state is
written before, that of its old state removed after.
"""

from __future__ import annotations

import math

import msgspec

from buoy.core.ids import RunId, check_run_id
from buoy.core.log.document import Document
from buoy.core.log.document import document as document_of
from buoy.core.log.state import fold
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, StoreUnusable, Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Broken, RunRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.inbox.ends import InboxEnds
from buoy.stores.objects.index.entries import Entry, Index
from buoy.stores.objects.logs import Logs
from buoy.stores.objects.records import (
    LogObject,
    StateObject,
    StoredRun,
    TaskState,
    entry_of,
    merged,
    next_task,
    passed,
    record_of,
    saved_view,
    state_object,
)
from buoy.stores.objects.segments import Segments
from buoy.stores.unreadable import GARBLED, UNREADABLE, Met, broken

# Runs of which this process remembers what it last saw: those that it drives, and then some.
KNOWN_MAX = 20_000
# What was seen longer ago is looked at again before it is written over. Longer than any step that is not long anyway.
LATELY_S = 30.0
# A run that ended is listed as ended once it owes nothing more, or after this time.
LISTED_AFTER_S = 2.0

_STATES = msgspec.json.Decoder(StateObject)
_DOCUMENTS = msgspec.json.Decoder(Document)


class Runs(Logs):
    """Reads runs, and remembers them to save reads. What is remembered is never trusted where it decides anything."""

    def __init__(self, bucket: Bucket, index: Index, clock: Clock) -> None:
        super().__init__(bucket, Segments(bucket, index), self._head_seq)
        self._index = index
        self._clock = clock
        self.met = Met()
        self.inbox_ends = InboxEnds(bucket)
        self._known: dict[RunId, StoredRun] = {}
        self._known_at: dict[RunId, float] = {}
        # What owners in this process looked at; durable with their next commit or release.
        self.seen: dict[RunId, int] = {}
        # Runs that this process ended and has not settled: their entries among those that ended, and since when.
        self._owing: dict[RunId, tuple[Entry, float]] = {}

    def known(self, run_id: RunId) -> StoredRun | None:
        return self._known.get(run_id)

    def known_s(self, run_id: RunId) -> float:
        """How long ago the run was as this process remembers it. A process may be frozen while it reads."""
        return self._clock.monotonic() - self._known_at.get(run_id, -math.inf)

    def known_lately(self, run_id: RunId) -> StoredRun | None:
        return self._known.get(run_id) if self.known_s(run_id) <= LATELY_S else None

    def remember(self, view: StoredRun, *, since: float, read: bool = True) -> StoredRun:
        """Adds what was read since then, or written. What was read of `state.json` counts, even if it seems older."""
        old = self._known.pop(view.run_id, None)
        if old is not None:
            view = merged(old, view, state=view if read or view.counter >= old.counter else old)
        elif len(self._known) >= KNOWN_MAX:
            self._forget(next(iter(self._known)))
        self._known[view.run_id] = view
        self._known_at[view.run_id] = since
        return view

    def _forget(self, run_id: RunId) -> None:
        self._known.pop(run_id, None)
        self._known_at.pop(run_id, None)

    async def look(self, run_id: RunId) -> StoredRun | Broken | None:
        """As `load`, for callers that look at many runs: an unreadable one is returned as `Broken`, not as absent."""
        try:
            return await self.load(run_id)
        except UNREADABLE as error:
            return self.met.note(broken("run", run_id, layout.run_prefix(run_id), error))

    async def look_again(self, run_id: RunId) -> StoredRun | Broken | None:
        """As `look`. If this process read the run a moment ago, only what the log got since then is asked for.

        For callers that compare and swap `state.json` next, which fails if that has changed.
        """
        known = self.known_lately(run_id)
        if known is not None and known.etag is not None and not await self.commits(run_id, known.head_seq):
            return known
        return await self.look(run_id)

    async def load(self, run_id: RunId) -> StoredRun | None:
        """The run as it is now, or None if there is positively none."""
        before = self._known.get(check_run_id(run_id))
        return await self._load(run_id, before, await self._bucket.get(layout.state_key(run_id)))

    async def glimpse(self, run_id: RunId) -> StoredRun | Broken | None:
        """As `look`, by one request for a run that no runner holds: then `state.json` was written with its last commit.

        A process that was killed in between left an older one. The next claim of the run brings it up to the log.
        """
        try:
            before = self._known.get(check_run_id(run_id))
            found = await self._bucket.get(layout.state_key(run_id))
            saved = None if found is None else _state(found[0])
            current = saved is not None and saved.task.kind != "held" and saved.head_seq > 0
            if found is None or saved is None or not current or (before and before.head_seq > saved.head_seq):
                return await self._load(run_id, before, found)
            return saved_view(run_id, saved, found[1])
        except UNREADABLE as error:
            return self.met.note(broken("run", run_id, layout.run_prefix(run_id), error))

    async def _load(self, run_id: RunId, before: StoredRun | None, found: tuple[bytes, str] | None) -> StoredRun | None:
        """The run, after `found` was read as its `state.json`. `before`: what was remembered before that."""
        since, saved = self._clock.monotonic(), None if found is None else _state(found[0])
        head = 0 if saved is None else saved.head_seq
        firsts = await self.commits(run_id, head)
        etag = None if found is None else found[1]
        if not firsts:
            if saved is None or etag is None:
                return None
            return self._read(await self.settled(saved_view(run_id, saved, etag)), before, since)
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
        return self._read(await self.settled(view), before, since)

    async def settled(self, view: StoredRun) -> StoredRun:
        """The run without its task, if it has ended and its owner settled what it owed.

        That never becomes untrue for this commit, so that it needs no compare-and-swap.
        """
        if not view.document.ended or view.task.kind == "none":
            return view
        key = layout.index_key(view.run_id, view.document.created_at, view.head_seq)
        if await self._bucket.get(key) is None:
            return view
        return msgspec.structs.replace(view, task=next_task(view.task, "none"))

    def committed(self, view: StoredRun) -> None:
        """Notes whether this process ended the run while the run still owes others something."""
        self._owing.pop(view.run_id, None)
        if view.document.ended and view.task.kind == "held":
            entry = (layout.index_key(view.run_id, view.document.created_at), b"{}")
            self._owing[view.run_id] = (entry, self._clock.monotonic())

    async def list_owing(self) -> None:
        """Lists as ended what owes something for long. Most runs settle before, by an entry that lists them as well."""
        due = self._clock.monotonic() - LISTED_AFTER_S
        late = [run_id for run_id, (_, since) in self._owing.items() if since <= due]
        for run_id in late:
            if (owing := self._owing.pop(run_id, None)) is not None:
                try:
                    await self._index.add([owing[0]])
                except (Unavailable, StoreUnusable) as error:
                    self._owing.setdefault(run_id, owing)
                    self._index.note(error)
                    return

    async def settle(self, view: StoredRun) -> None:
        """Writes down that this run has ended and owes nothing to anybody: its entry among those that ended."""
        settled = msgspec.structs.replace(view, task=next_task(view.task, "none"))
        key = layout.index_key(view.run_id, view.document.created_at, view.head_seq)
        await self._index.add([(key, msgspec.json.encode(state_object(settled)))])
        self._owing.pop(view.run_id, None)
        if self.known_lately(view.run_id) is None and await self.commits(view.run_id, view.head_seq):
            # The owner was held up, was taken for dead, and the run was brought back.
            await self._index.drop([key])
            return
        self.remember(settled, since=self._known_at.get(view.run_id, -math.inf), read=False)

    async def unsettle(self, view: StoredRun) -> None:
        """Empties the entry of a run that settled, before a commit that brings it back: lists trust what it holds."""
        await self._bucket.put(layout.index_key(view.run_id, view.document.created_at, view.head_seq), b"{}")

    async def settled_view(self, entry: layout.RunEntry) -> StoredRun | None:
        """What an entry of `index/` has of the run itself; None: nothing, or nothing that can be read."""
        found = await self._bucket.get(entry.key)
        saved = None if found is None else _state(found[0])
        return None if saved is None or found is None else saved_view(entry.run_id, saved, found[1])

    def _read(self, view: StoredRun, before: StoredRun | None, since: float) -> StoredRun:
        """What was read counts, even if more is remembered, which may be lost; unless it was added since."""
        if self._known.get(view.run_id) is before:
            self._known.pop(view.run_id, None)
        return self.remember(view, since=since)

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

    async def _document(self, run_id: RunId, last: LogObject) -> Document:
        """The document of the last commit; folded again if another version of Buoy wrote it."""
        try:
            return _DOCUMENTS.decode(last.document)
        except GARBLED:
            return document_of(fold(run_id, await self.events(run_id, 0, None)))

    async def _head_seq(self, run_id: RunId) -> int:
        known = self._known.get(run_id) or await self.load(run_id)
        return 0 if known is None else known.head_seq

    async def save(self, view: StoredRun, *, alike: bool = False) -> StoredRun:
        """Writes `state.json` over exactly the version that `view` was read with. Raises `Changed`.

        `alike`: other processes may write exactly the same, so that what is there is no proof that it is ours.
        """
        saved, since = state_object(view), self._clock.monotonic()
        data = msgspec.json.encode(saved)
        key = layout.state_key(view.run_id)
        try:
            write = self._bucket.create(key, data) if view.etag is None else self._bucket.replace(key, data, view.etag)
            etag = await write
        except (Exists, Changed) as error:
            # The write may have been sent twice on its way: then the refusal is that of the second sending.
            found = None if alike else await self._bucket.get(key)
            if found is None or found[0] != data:
                raise Changed(key) from error
            etag = found[1]
        return self.remember(saved_view(view.run_id, saved, etag), since=since)

    async def move(self, view: StoredRun, task: TaskState, *, alike: bool = False) -> StoredRun | None:
        """Gives the run's task its next state; None if another process was quicker. Raises Unavailable if unclear."""
        entry = entry_of(view.document, task)
        entries = [] if entry is None else [entry]
        if view.document.ended:
            # It still has duties, which take longer than usual. It is listed as ended from here on.
            entries.append((layout.index_key(view.run_id, view.document.created_at), b"{}"))
        since = await self._index.add(entries)
        await self._index.refresh(entries, since)
        try:
            moved = await self._save_for_sure(msgspec.structs.replace(view, task=task), alike=alike)
        except Changed:
            moved = None
        if moved is None:
            await self._tidy(view.run_id, task, entry)
            return None
        old = entry_of(view.document, view.task)
        await self._index.drop([None if old is None else old[0]])
        return moved

    async def _save_for_sure(self, view: StoredRun, *, alike: bool) -> StoredRun | None:
        try:
            return await self.save(view, alike=alike)
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

    async def record(self, view: StoredRun, now: float, *, all_seen: bool = False) -> RunRecord:
        """The run as the port shows it. An unseen message makes a task without a holder due at once.

        `all_seen`: no wake-up tells of an unseen message, so the inbox is not listed.
        """
        return record_of(view, view.task.seen if all_seen else await self.inbox_head(view), now)


def _state(data: bytes) -> StateObject | None:
    """A damaged document loses nothing: the log has all of it."""
    try:
        return _STATES.decode(data)
    except GARBLED:
        return None


def _same(one: TaskState, other: TaskState) -> bool:
    return (one.version, one.kind, one.holder) == (other.version, other.kind, other.holder)
