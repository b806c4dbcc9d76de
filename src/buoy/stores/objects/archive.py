"""Archive in objects: whole runs brought in and removed, by one create-if-absent each.

Invariants: a copy exists from the moment that its `log/1` exists. The parts that it names are written before. Its inbox
is completed after, from the top down: until then its numbers are taken, and a reader that comes too early gets an error
that says so.
A purge first appends an end to the log that no writer can append after, so it cannot race with a writer. From then on
the run does not exist. Two small objects stay forever, at the log's first and last place.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from buoy.core.ids import RunId, check_run_id
from buoy.core.log.codec import encode_events
from buoy.core.log.document import Document
from buoy.core.log.events import NULL
from buoy.errors import CorruptLog, StoreUnusable, Unavailable, WrongState
from buoy.ports.maintenance import Remains, RunCopy, TaskFound, Tombstone
from buoy.ports.records import Message
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.inbox.dedupe_ids import short_id, with_ids_before
from buoy.stores.objects.index.entries import Entry, Index, each
from buoy.stores.objects.records import LogObject, StoredRun, TaskState, listed_entries, newer_task
from buoy.stores.objects.remains import index_entries, remains
from buoy.stores.objects.runs import Runs
from buoy.stores.objects.tombstones import tombstone_object, tombstones
from buoy.stores.store_clock import StoreClock

# Events in one object: few objects to write, and none too large to be read for a page of events.
PART_EVENTS = 1_000
SAVE_TRIES_MAX = 5


class ObjectArchive:
    """The archive of one object store."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, clock: StoreClock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._index = index
        self._runs = runs

    def _now(self) -> float | None:
        return self._clock.now() if self._clock.own else None

    # ---- bringing

    async def import_run(self, copy: RunCopy) -> bool:
        run_id, head_seq = check_run_id(copy.document.run_id), len(copy.events)
        assert copy.found or head_seq == copy.document.head_seq, f"the copy of {run_id} has not the log of its document"
        if not head_seq:
            return await self._bring_foreign(run_id, copy)
        there = await self._runs.log_object(run_id, 1)
        if there is None:
            there = await self._bring(run_id, copy)
        if there.purged is not None:
            raise WrongState(f"run {run_id} was purged from this store; its id is used up")
        if there.copy != copy.id:
            return False
        await self._complete_inbox(copy, there.task.seen)
        if copy.found is not None:
            # Before anybody saves the document that the log amounts to.
            await self._put_found(run_id, copy)
        await self._save(run_id)
        return True

    async def _bring_foreign(self, run_id: RunId, copy: RunCopy) -> bool:
        """A document without a log: nothing but `state.json`."""
        if await self._runs.log_object(run_id, 1) is not None or await self._runs.load(run_id) is not None:
            return False
        await self._announce(copy.document, _task(copy))
        return await self._put_found(run_id, copy)

    async def _put_found(self, run_id: RunId, copy: RunCopy) -> bool:
        view = StoredRun(
            run_id=run_id, head_seq=len(copy.events), document=copy.document, task=_task(copy), taken_at=self._now()
        )
        try:
            await self._runs.save(view)
        except Changed:
            return False
        return True

    async def _bring(self, run_id: RunId, copy: RunCopy) -> LogObject:
        """Writes the parts, the index entries and then the log. What is there in the end, ours or another's."""
        events = copy.events
        firsts = range(PART_EVENTS, len(events), PART_EVENTS)

        async def part(begin: int) -> None:
            key = layout.part_key(run_id, copy.id, events[begin].seq)
            await self._create(key, encode_events(events[begin : begin + PART_EVENTS]))

        await each(firsts, part)
        task = _task(copy)
        log = LogObject(
            last_seq=events[-1].seq,
            events=msgspec.Raw(encode_events(events[:PART_EVENTS])),
            # A document as it was found may lie: it is in `state.json` alone, where it can be put right.
            document=NULL if copy.found else msgspec.Raw(msgspec.json.encode(copy.document)),
            task=task,
            nonce=events[0].nonce,
            copy=copy.id,
            parts=tuple(events[begin].seq for begin in firsts),
            taken_at=self._now(),
        )
        await self._announce(copy.document, task)
        return await self._put_log(run_id, 1, log)

    async def _announce(self, document: Document, task: TaskState) -> None:
        """The index entries of a run in this state."""
        entries = listed_entries(document, task)
        since = await self._index.add(entries)
        await self._index.refresh(entries, since)

    async def _put_log(self, run_id: RunId, first_seq: int, log: LogObject) -> LogObject:
        """What is at that place of the log afterwards."""
        try:
            await self._bucket.create(layout.log_key(run_id, first_seq), msgspec.json.encode(log))
        except (Exists, Unavailable) as error:
            # Law 2: read back before concluding anything.
            there = await self._runs.log_object(run_id, first_seq)
            if there is None:
                key = layout.log_key(run_id, first_seq)
                raise Unavailable(f"{key} was not answered clearly, and nothing is there; try again") from error
            return there
        return log

    async def _complete_inbox(self, copy: RunCopy, last: int) -> None:
        """Up to the number that the log says was seen. What the original got since then has to be sent."""
        ids = {message.number: short_id(message.dedupe) for message in copy.messages}

        async def put(message: Message) -> None:
            stored = msgspec.json.encode(with_ids_before(message, message.number, ids))
            await self._create(layout.inbox_key(message.run_id, message.number), stored)

        downwards = [message for message in reversed(copy.messages) if message.number <= last]
        if downwards:
            await put(downwards[0])
            await each(downwards[1:], put)

    async def _create(self, key: str, data: bytes) -> None:
        with suppress(Exists):
            await self._bucket.create(key, data)

    async def _save(self, run_id: RunId) -> None:
        """`state.json`, which only saves others work."""
        try:
            for _ in range(SAVE_TRIES_MAX):
                view = await self._runs.load(run_id)
                if view is None or view.saved_head >= view.head_seq:
                    return
                try:
                    await self._runs.save(view)
                    return
                except Changed:
                    continue
        except (Unavailable, StoreUnusable) as error:
            self._index.note(error)

    # ---- putting right

    async def rewrite(self, run_id: RunId, document: Document, head_seq: int) -> bool:
        for _ in range(SAVE_TRIES_MAX):
            # In this order: a commit after the listing changes nothing that this would spoil.
            saved, etag = await self._runs.saved(run_id)
            last = await self._runs.last_commit(run_id)
            if last is None or last.purged is not None or last.last_seq != head_seq:
                return False
            task = last.task if saved is None else newer_task(last.task, saved.task)
            counter = 0 if saved is None else saved.counter
            view = StoredRun(
                run_id=run_id, head_seq=head_seq, document=document, task=task, etag=etag, counter=counter,
                taken_at=last.taken_at,
            )  # fmt: skip
            view = await self._runs.settled(view)
            await self._announce(document, view.task)
            try:
                await self._runs.save(view)
                return True
            except Changed:
                continue
        raise Unavailable(f"the document of {run_id} is changed by others all the time; try again")

    # ---- removing

    async def purge(self, tombstone: Tombstone) -> bool:
        run_id = check_run_id(tombstone.run_id)
        fenced = await self.tombstone(run_id) or await self._fence(run_id, tombstone)
        if fenced is None:
            return False
        await self._remove(run_id, fenced)
        return True

    async def _fence(self, run_id: RunId, tombstone: Tombstone) -> Tombstone | None:
        """Ends the log for good; None if the run is not one to be purged, or if another process was quicker."""
        view = await self._runs.load(run_id)
        if view is None or view.head_seq != tombstone.head_seq:
            return None
        if not view.document.ended or view.task.kind != "none":
            return None
        entries: list[Entry] = [(layout.purge_key(run_id), b"{}")]
        since = await self._index.add(entries)
        await self._index.refresh(entries, since)
        there = await self._put_log(run_id, view.head_seq + 1, tombstone_object(tombstone, view.task))
        if there.purged is None:
            await self._index.drop([layout.purge_key(run_id)])
        return there.purged

    async def remains(self, run_id: RunId) -> Remains | None:
        found = await remains(self._bucket, self._runs, check_run_id(run_id))
        return None if found is None or await self._ends_with_tombstone(run_id) else found

    async def _ends_with_tombstone(self, run_id: RunId) -> bool:
        """Whether the log ends with a tombstone. One whose end cannot be read does not."""
        try:
            return await self.tombstone(run_id) is not None
        except CorruptLog:
            return False

    async def purge_broken(self, tombstone: Tombstone, digest: str) -> bool:
        run_id = check_run_id(tombstone.run_id)
        found = await self.remains(run_id)
        if found is None or found.digest != digest:
            return False
        await self._index.add([(layout.purge_key(run_id), b"{}")])
        # As a purge does: from here on the run is not there, and a crash leaves what the next purge completes.
        there = await self._put_log(run_id, tombstone.head_seq + 1, tombstone_object(tombstone, TaskState("none", 1)))
        if there.purged is None:
            await self._index.drop([layout.purge_key(run_id)])
            return False
        entries = await index_entries(self._bucket, run_id)
        await self._remove(run_id, tombstone)
        await self._bucket.delete_many(entries)
        # Also if a folder is in its place, which no listing shows.
        await self._bucket.delete(layout.state_key(run_id))
        return True

    async def _remove(self, run_id: RunId, tombstone: Tombstone) -> None:
        """All but the tombstone, which is at the first and the last place of the log. Can be repeated."""
        first, last = layout.log_key(run_id, 1), layout.log_key(run_id, tombstone.head_seq + 1)
        await self._add_tombstone_first(run_id, tombstone)
        keys = [key for key in await self._bucket.list(layout.run_prefix(run_id)) if key not in (first, last)]
        await self._bucket.delete_many([*keys, *await self._bucket.list(layout.wake_prefix(run_id))])
        index = layout.index_keys(run_id, tombstone.created_at, tombstone.head_seq)
        await self._index.drop([*index, layout.purge_key(run_id)])

    async def _add_tombstone_first(self, run_id: RunId, tombstone: Tombstone) -> None:
        """The first place of the log is what every new run of that id would take."""
        key = layout.log_key(run_id, 1)
        found = await self._bucket.get(key)
        if found is not None and await self._runs.has_tombstone(run_id):
            return
        data = msgspec.json.encode(tombstone_object(tombstone, TaskState("none", 1)))
        try:
            await (self._bucket.create(key, data) if found is None else self._bucket.replace(key, data, found[1]))
        except (Exists, Changed):
            # Another purge of the same run was quicker; it wrote the same.
            return

    async def tombstone(self, run_id: RunId) -> Tombstone | None:
        last = await self._runs.last_commit(run_id)
        return None if last is None else last.purged

    async def tombstones(self, after: RunId | None, limit: int) -> list[Tombstone]:
        return await tombstones(self._bucket, self._runs, after, limit)

    async def add_tombstone(self, tombstone: Tombstone) -> bool:
        run_id = check_run_id(tombstone.run_id)
        there = await self._runs.log_object(run_id, 1)
        if there is not None:
            return False
        made = tombstone_object(tombstone, TaskState("none", 1))
        return (await self._put_log(run_id, 1, made)).purged == tombstone

    async def half_purged(self) -> list[RunId]:
        found: list[RunId] = []
        for key in await self._bucket.list(layout.PURGES):
            run_id = layout.purged_run_of(key)
            if run_id is None:
                continue
            if await self.tombstone(run_id) is None:
                await self._index.doubt(key)
            else:
                found.append(run_id)
        return found


def _task(copy: RunCopy) -> TaskState:
    """The task of a copy: without a holder, unless the original had one. All messages count as seen."""
    found = copy.found or TaskFound("missing" if copy.document.ended else "parked")
    return TaskState(
        "none" if found.state == "missing" else found.state,
        # The log of a document that had none begins later.
        1 if copy.events else 0,
        holder=found.holder if found.state == "held" else None,
        due_at=float(found.due_at) if found.state == "due" and found.due_at is not None else None,
        seen=max((each.number for each in copy.messages), default=0),
        generation=copy.generation,
    )
