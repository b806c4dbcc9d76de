"""The object store: runs as objects of a bucket, with create-if-absent and compare-and-swap of single objects.

Invariants: those of `buoy.ports.Store`; the layout and its laws stand in `layout`. Nothing here needs a transaction, a
clock that others share, or a lock: the log is the lock.
Absent on purpose: any kind of storage. Folders, memory and S3 are buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from buoy.core.events import Event
from buoy.core.ids import RunId, RunnerId
from buoy.errors import StoreUnusable
from buoy.ports import (
    Beat,
    Broken,
    Clock,
    Ended,
    Evidence,
    Message,
    Orphan,
    Outcome,
    Receipt,
    Released,
    RunnerInfo,
    RunnerRecord,
    RunPage,
    RunQuery,
    RunRecord,
    Task,
    Wants,
    Write,
)
from buoy.stores import layout
from buoy.stores.bucket import Bucket, Exists
from buoy.stores.object_archive import ObjectArchive
from buoy.stores.object_checkup import ObjectCheckup
from buoy.stores.object_claims import Claims
from buoy.stores.object_commit import Commits
from buoy.stores.object_inbox import Inboxes
from buoy.stores.object_index import Index
from buoy.stores.object_lists import Lists
from buoy.stores.object_runners import Runners
from buoy.stores.object_runs import Runs
from buoy.stores.object_sweep import Sweeps
from buoy.stores.object_timetable import ObjectTimetable
from buoy.stores.watch import Watch

FORMAT = 1


class Marker(msgspec.Struct, frozen=True):
    """Says that a bucket is a Buoy store, and of which format."""

    format: int


class ObjectStore:
    """A store in a bucket. Open it with `await ObjectStore.on(bucket, clock=clock)`."""

    def __init__(self, bucket: Bucket, clock: Clock, *, one_host: bool = False) -> None:
        self._bucket = bucket
        self._clock = clock
        self._one_host = one_host
        self.index = Index(bucket, clock)
        self._runs = Runs(bucket, self.index, clock)
        self._runners = Runners(bucket, self.index, clock)
        self._commits = Commits(bucket, self.index, self._runs, clock)
        self._inboxes = Inboxes(bucket, self.index, self._runs, clock)
        self._claims = Claims(bucket, self.index, self._runs, self._inboxes, self._runners, clock)
        self._sweeps = Sweeps(bucket, self.index, self._runs, self._runners, clock)
        self._lists = Lists(bucket, self.index, self._runs, clock)
        self.archive = ObjectArchive(bucket, self.index, self._runs)
        self.checkup = ObjectCheckup(bucket, self.index, self._runs, self._runners, clock)
        self.timetable = ObjectTimetable(bucket)
        self._watch = Watch(bucket.pulse)

    @classmethod
    async def on(cls, bucket: Bucket, *, clock: Clock, one_host: bool = False) -> ObjectStore:
        """The store in that bucket. An empty bucket becomes one; anything else that is none is refused."""
        await mark(bucket)
        return cls(bucket, clock, one_host=one_host)

    @property
    def url(self) -> str:
        return self._bucket.url

    @property
    def one_host(self) -> bool:
        return self._one_host

    @property
    def prompt(self) -> bool:
        return False

    @property
    def keeps_time(self) -> bool:
        """False: a bucket has no clock; its times are those of the machine that wrote them."""
        return False

    @property
    def lock_dir(self) -> Path | None:
        """A bucket has no place for lock files; a folder does."""
        return None

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = await self._commits.commit(writes)
        if any(write.after_seq == 0 or isinstance(write.task, Released) for write in writes):
            self._watch.notify()
        return outcomes

    async def run(self, run_id: RunId) -> RunRecord | None:
        view = await self._runs.load(run_id)
        return None if view is None else await self._runs.record(view, self._clock.now())

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        return await self._runs.events(run_id, after, limit)

    async def send(self, message: Message) -> Receipt:
        receipt = await self._inboxes.send(message)
        if not receipt.duplicate:
            self._watch.notify()
        return receipt

    async def inbox(self, run_id: RunId, after: int = 0) -> list[Message]:
        return await self._inboxes.read(run_id, after)

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage:
        return await self._lists.find(query, cursor, limit)

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        return await self._lists.ids(prefix, limit)

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        return await self._claims.claim(runner, wants, limit)

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        done = await self._claims.release(run_id, runner, change, head_seq)
        self._watch.notify()
        return done

    async def pokes(self, runner: RunnerId) -> list[RunId]:
        return await self._inboxes.pokes(runner)

    async def seen(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._inboxes.seen(run_id, runner, number)

    async def register(self, info: RunnerInfo) -> None:
        await self._runners.register(info)

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        return await self._runners.beat(runner, beat)

    async def runners(self, *, gone: bool = False) -> list[RunnerRecord]:
        return await self._runners.all(gone=gone)

    async def unregistered(self) -> list[RunnerId]:
        return await self._runners.unregistered()

    def met(self) -> tuple[Broken, ...]:
        return self._runs.met.take()

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        return await self._runners.suspect(runner, beat_number)

    async def bury(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        freed = await self._sweeps.bury(runner, why, cause, evidence, beat_number)
        self._watch.notify()
        return freed

    async def orphans(self, limit: int) -> list[Orphan]:
        return await self._sweeps.orphans(limit)

    async def adopt(self, orphan: Orphan) -> bool:
        adopted = await self._sweeps.adopt(orphan)
        self._watch.notify()
        return adopted

    async def define(self, version: str, data: bytes) -> None:
        # One that is there already has this very content: the key is its hash.
        with suppress(Exists):
            await self._bucket.create(layout.definition_key(version), data)

    async def definition(self, version: str) -> bytes | None:
        found = await self._bucket.get(layout.definition_key(version))
        return None if found is None else found[0]

    async def now(self) -> float:
        return self._clock.now()

    async def changed(self, timeout_s: float) -> bool:
        return await self._watch.wait(timeout_s)

    async def close(self) -> None:
        await self._bucket.close()


async def mark(bucket: Bucket) -> None:
    """Makes an empty bucket a store; refuses what is none, and what a newer Buoy made."""
    found = await bucket.get(layout.MARKER)
    if found is None:
        holds = await bucket.list("", limit=1) or await bucket.foreign("")
        if holds and await bucket.get(layout.MARKER) is None:
            raise StoreUnusable(f"{bucket.url} holds other things and is no Buoy store; name an empty place or a store")
        with suppress(Exists):
            await bucket.create(layout.MARKER, msgspec.json.encode(Marker(FORMAT)))
        found = await bucket.get(layout.MARKER)
    try:
        made = msgspec.json.decode(b"" if found is None else found[0], type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreUnusable(f"{bucket.url}/{layout.MARKER} cannot be read: {error}; restore it") from error
    if made.format > FORMAT:
        raise StoreUnusable(
            f"{bucket.url} has format {made.format}, this Buoy knows {FORMAT}: a newer Buoy wrote it; upgrade this one"
        )


__all__ = ["ObjectStore"]
