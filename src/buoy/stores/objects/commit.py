"""Commit in objects: one append is one create-if-absent, and that is the fence and the commit point.

Order of a commit: the entries that make the run findable in its new state; the log object, which holds the events, the
document and the task; then, only to save others work, `state.json` and the removal of entries that are passed. A crash
after the log object loses nothing, so what fails there is a leftover and no error of the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.codec import encode_events
from buoy.core.log.lifecycle import Status
from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.records import Committed, FencedOut, Outcome, Write
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.index.entries import Entry, Index, each
from buoy.stores.objects.records import LogObject, StoredRun, TaskState, entry_of, passed, task_after
from buoy.stores.objects.runs import Runs
from buoy.stores.store_clock import StoreClock

# Commits of a run that its owner drives on leave `state.json` behind, by at most that many events.
LAG_MAX = 128
# Wake-ups that one commit removes. The owner's next look removes the others.
WAKES_MAX = 64
SAVE_TRIES_MAX = 5
# What a writer knows of its run is at most so old when it does not ask whether the run was purged. In this time a
# frozen writer would have to be declared dead, and its run be taken over, end and be purged.
PURGED_SINCE_S = 5.0
# A run that is taken for the first time goes from one to the other: that alone is no reason to write `state.json`.
_DRIVEN = frozenset({None, Status.PENDING, Status.RUNNING})


class Commits:
    """Appends to logs."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, clock: StoreClock) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._clock = clock

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """The runs at once, each run's own writes in order."""
        by_run: dict[RunId, list[int]] = {}
        for place, write in enumerate(writes):
            by_run.setdefault(write.run_id, []).append(place)
        outcomes: dict[int, Outcome] = {}

        async def one_run(places: list[int]) -> None:
            for place in places:
                outcomes[place] = await self._append(writes[place])

        await each(by_run.values(), one_run)
        return [outcomes[place] for place in range(len(writes))]

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        """What is in the place of each write: one request for each, some at a time."""
        return await each(writes, self._landed)

    async def _landed(self, write: Write) -> Outcome | None:
        there = await self._runs.log_object(write.run_id, write.after_seq + 1)
        if there is None:
            return None
        if there.nonce is None or there.nonce != write.events[0].nonce:
            return FencedOut(there.last_seq)
        # It may have taken a place that a purge had freed.
        return FencedOut(0) if await self._runs.has_tombstone(write.run_id) else Committed(write.events[-1].seq)

    async def _append(self, write: Write) -> Outcome:
        base = await self._base(write)
        if isinstance(base, FencedOut):
            return base
        events, last_seq = write.events, write.after_seq + len(write.events)
        assert events and events[0].seq == write.after_seq + 1 and events[-1].seq == last_seq, f"gap in {write.run_id}"
        # A document that came without a log has no task.
        old = base.task if base is not None and base.head_seq else None
        ended = base is not None and base.document.ended
        task = task_after(write, old, self._runs.seen.get(write.run_id, 0), self._clock, ended=ended)
        log = LogObject(
            last_seq=last_seq,
            events=msgspec.Raw(encode_events(events)),
            document=msgspec.Raw(msgspec.json.encode(write.document)),
            task=task,
            nonce=events[0].nonce,
            taken_at=self._clock.now() if self._clock.own else None,
        )
        entries = _entries(write, base, task)
        since = await self._index.add(entries)
        await self._index.refresh(entries, since)
        if base is not None and _brings_back(write, base) and base.task.kind == "none":
            await self._runs.unsettle(base)
        asked_at = self._clock.monotonic()
        made = await self._create(write, log)
        if made is None:
            return await self._overtaken(write, base, task)
        if write.after_seq and await self._took_a_freed_place(write):
            await self._bucket.delete(layout.log_key(write.run_id, write.after_seq + 1))
            await self._index.drop([key for key, _ in entries])
            return FencedOut(0)
        await self._finish(write, base, made, asked_at)
        await self._runs.segments.committed(write.run_id, made, write.after_seq + 1)
        return Committed(last_seq)

    async def _overtaken(self, write: Write, base: StoredRun | None, task: TaskState) -> FencedOut:
        """Another writer was quicker: removes the entries that it does not know of."""
        now = await self._runs.load(write.run_id)
        if now is None:
            if base is not None and _brings_back(write, base):
                # A purge. It may have removed this entry before `unsettle` wrote it.
                await self._index.drop([layout.index_key(write.run_id, base.document.created_at, base.head_seq)])
            return FencedOut(0)
        entry = entry_of(write.document, task)
        if entry is not None and passed(entry[0], task.version, now):
            await self._index.drop([entry[0]])
        return FencedOut(now.head_seq)

    async def _took_a_freed_place(self, write: Write) -> bool:
        """Whether this commit took a place that the purge of its run had freed.

        Asked after the commit: a writer may be held up at any moment before it, and a purge writes the tombstone before
        it frees a place. A commit that comes soon after what its writer knows needs no question.
        """
        return self._runs.known_s(write.run_id) > PURGED_SINCE_S and await self._runs.has_tombstone(write.run_id)

    async def _base(self, write: Write) -> StoredRun | FencedOut | None:
        """The run as it must be for this append; None for a new run. The number must be a commit's last one."""
        known = self._runs.known(write.run_id)
        lately = self._runs.known_lately(write.run_id)
        if lately is not None and lately.head_seq == write.after_seq:
            return lately
        if known is not None and known.head_seq == write.after_seq > 0:
            return known  # the create fails if another writer appended since; for a purge see `_took_a_freed_place`
        if write.after_seq == 0 and known is None:
            # The fence is the create; this only spares a second starter the entries that lead nowhere.
            there = await self._bucket.get(layout.log_key(write.run_id, 1))
            if there is None:
                return None
        view = await self._runs.load(write.run_id)
        if view is None:
            # Of a new run something is there that is no run: a tombstone.
            return FencedOut(0)
        return view if view.head_seq == write.after_seq else FencedOut(view.head_seq)

    async def _create(self, write: Write, log: LogObject) -> LogObject | None:
        """This commit as it is there now, perhaps since an earlier try; None if another one is there."""
        first = write.after_seq + 1
        try:
            await self._bucket.create(layout.log_key(write.run_id, first), msgspec.json.encode(log))
        except Exists:
            there = await self._runs.log_object(write.run_id, first)
            if there is None:
                # S3 may answer so to a writer that meets another one, which then fails: the place is still free.
                key = layout.log_key(write.run_id, first)
                raise Unavailable(f"{key} was refused as existing, but nothing is there; try again") from None
        except Unavailable:
            # Law 2: read back by number and nonce before concluding anything.
            there = await self._runs.log_object(write.run_id, first)
            if there is None:
                raise
        else:
            return log
        return there if there is not None and there.nonce is not None and there.nonce == log.nonce else None

    async def _finish(self, write: Write, base: StoredRun | None, made: LogObject, asked_at: float) -> None:
        task, taken_at, last_seq = made.task, made.taken_at, write.events[-1].seq
        view = StoredRun(run_id=write.run_id, head_seq=last_seq, document=write.document, task=task, taken_at=taken_at)
        if base is not None:
            view = msgspec.structs.replace(
                base, head_seq=last_seq, document=write.document, task=task, taken_at=taken_at
            )
        view = self._runs.remember(view, since=asked_at, read=False)
        self._runs.committed(view)
        # A new run that is due needs no `state.json`: its log says all, and the runner that claims it writes one.
        if (base is not None or task.kind != "due") and _wants_saving(view):
            await self._save(view)
        if base is not None and base.task.version != task.version:
            old, new = entry_of(base.document, base.task), entry_of(write.document, task)
            await self._index.drop([None if old is None or old == new else old[0]])
        if base is not None and base.task.seen < task.seen:
            await self._index.drop(self._heard(base, task))
        if task.kind != "held":
            # Durable now, and the next owner looks by itself.
            self._runs.seen.pop(write.run_id, None)
        if base is not None and _brings_back(write, base):
            await self._index.drop([layout.index_key(write.run_id, write.document.created_at, base.head_seq)])
        if task.kind == "none" and write.document.ended:
            active = layout.active_key(write.run_id, write.document.created_at, task.active_seq)
            await self._index.drop([active])

    def _heard(self, base: StoredRun, task: TaskState) -> list[str]:
        """The wake-ups of messages that this commit calls seen. While one stands, every worker's look reads the run."""
        seen = max(base.task.seen, self._runs.seen.get(base.run_id, 0))
        return [layout.wake_key(base.run_id, number) for number in range(seen + 1, task.seen + 1)[:WAKES_MAX]]

    async def _save(self, view: StoredRun) -> None:
        """Brings `state.json` up to this commit, unless another process did so already."""
        current: StoredRun | None = view
        try:
            for _ in range(SAVE_TRIES_MAX):
                if current is None or not _wants_saving(current):
                    return
                try:
                    await self._runs.save(current)
                    return
                except Changed:
                    current = await self._runs.load(view.run_id)
        except (Unavailable, StoreUnusable) as error:
            self._index.note(error)


def _brings_back(write: Write, base: StoredRun) -> bool:
    """Whether a run that had ended is active again after this commit."""
    return base.document.ended and not write.document.ended


def _entries(write: Write, base: StoredRun | None, task: TaskState) -> list[Entry]:
    """What must be findable once this commit stands."""
    first, document = write.after_seq + 1, write.document
    entries: list[Entry] = []
    if task.kind == "none" and document.ended:
        entries.append((layout.index_key(write.run_id, document.created_at), b"{}"))
    elif task.active_seq == first:
        entries.append((layout.active_key(write.run_id, document.created_at, first), b"{}"))
    entry = entry_of(document, task)
    old = None if base is None or not base.head_seq else entry_of(base.document, base.task)
    if entry is not None and (old is None or old[0] != entry[0]):
        entries.append(entry)
    return entries


def _wants_saving(view: StoredRun) -> bool:
    """`load` reads the last commit anyway; saving keeps lists cheap, and bounds how far a reader must look ahead."""
    if view.task.kind != "held" and view.saved_version != view.task.version:
        return True
    status, saved = view.document.status, view.saved_status
    # Of a run that ended its owner has a last duty: what is then written says both.
    moved = saved != status and not (saved in _DRIVEN and status in _DRIVEN) and not view.document.ended
    return view.saved_head < view.head_seq and (moved or view.head_seq - view.saved_head >= LAG_MAX)
