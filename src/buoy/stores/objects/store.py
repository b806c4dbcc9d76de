"""The object store: runs as objects of a bucket, with create-if-absent and compare-and-swap of single objects.

Invariants: those of `buoy.ports.store.Store`; the layout and its laws are in `layout`. Nothing here needs a
transaction, a clock that others share, or a lock: the log is the lock.
Absent on purpose: any kind of storage. Folders, memory and S3 are buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import COMMIT_LANES_MAX
from buoy.core.log.events import Event
from buoy.core.times import StoreTime
from buoy.ports.host import Clock
from buoy.ports.pace import Lanes, Pace
from buoy.ports.records import (
    Beat,
    Broken,
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
from buoy.stores.change_feed import ChangeFeed, wakes_others
from buoy.stores.objects import layout
from buoy.stores.objects.archive import ObjectArchive
from buoy.stores.objects.bucket import Bucket, Exists
from buoy.stores.objects.claims import Claims
from buoy.stores.objects.commit import Commits
from buoy.stores.objects.inbox.messages import Inboxes
from buoy.stores.objects.index.counts import Counts
from buoy.stores.objects.index.entries import Index
from buoy.stores.objects.index.lists import Lists
from buoy.stores.objects.integrity import ObjectIntegrity
from buoy.stores.objects.marker import Upgrade, mark
from buoy.stores.objects.moves import Moves
from buoy.stores.objects.poke import Poke
from buoy.stores.objects.reclaim import Sweeps
from buoy.stores.objects.runners.registry import Runners
from buoy.stores.objects.runners.retirement import Retirement
from buoy.stores.objects.runs import Runs
from buoy.stores.objects.schedules import ObjectSchedules
from buoy.stores.objects.tokens import ObjectTokens
from buoy.stores.store_clock import StoreClock

# Where each request is billed. Work of others is hinted at by the poke.
METERED_PACE = Pace(look_s=120.0, fleet_s=12.0, orphans_s=240.0, schedules_s=240.0, sweep_looks=32)

_WAIT_LEAST_S = 0.001


class ObjectStore:
    """A store in a bucket. Open it with `await ObjectStore.on(bucket, clock=clock)`."""

    def __init__(
        self, bucket: Bucket, process_clock: Clock, *, single_host: bool = False, own_clock: Clock | None = None,
        outdated: bool = False,
    ) -> None:  # fmt: skip
        self._bucket = bucket
        clock = self._clock = StoreClock(process_clock, own_clock)
        self._one_host = single_host
        self.index = Index(bucket, clock)
        self._runs = Runs(bucket, self.index, clock)
        self._runners = Runners(bucket, self.index, clock)
        self._upgrade = Upgrade(bucket, self._runners.beats, due=outdated)
        self._retirement = Retirement(bucket, self.index, self._runners)
        self._commits = Commits(bucket, self.index, self._runs, clock)
        self._inboxes = Inboxes(bucket, self.index, self._runs, clock)
        self._claims = Claims(bucket, self.index, self._runs, self._inboxes, self._runners, clock)
        self._sweeps = Sweeps(bucket, self.index, self._runs, self._runners, clock)
        self._lists = Lists(bucket, self.index, self._runs, clock)
        self._counts = Counts(bucket, self._runs, self._lists)
        self.archive = ObjectArchive(bucket, self.index, self._runs, clock)
        self.integrity = ObjectIntegrity(bucket, self.index, self._runs, self._runners, clock)
        self._metered = bucket.pulse() is None
        self._poke = Poke(bucket, self.index, clock)
        if self._metered:
            self._runners.fleet.on_poke = self._poke_listed
        self.schedules = ObjectSchedules(bucket, self._changed)
        self.tokens = ObjectTokens(bucket)
        self._moves = Moves(bucket)
        self._watch = ChangeFeed(bucket.pulse)

    @classmethod
    async def on(
        cls, bucket: Bucket, *, clock: Clock, single_host: bool = False, own_clock: Clock | None = None
    ) -> ObjectStore:
        """The store in that bucket. An empty bucket becomes one; anything else that is none is refused.

        `own_clock`: as in `SqliteStore.open`.
        """
        outdated = await mark(bucket)
        return cls(bucket, clock, single_host=single_host, own_clock=own_clock, outdated=outdated)

    @property
    def name(self) -> str:
        return self._bucket.name

    @property
    def bucket(self) -> Bucket:
        return self._bucket

    @property
    def requests(self) -> dict[str, int]:
        """The requests of this process to a bucket that bills them, by kind; empty for folders and memory."""
        return dict(getattr(self._bucket, "requests", {}))

    @property
    def single_host(self) -> bool:
        return self._one_host

    @property
    def self_fencing(self) -> bool:
        return not self._one_host

    @property
    def commits_inline(self) -> bool:
        return False

    @property
    def lanes(self) -> Lanes:
        """A lane for each run: a commit is a request of its own, and a slow one must hold up no other run."""
        return Lanes(groups=COMMIT_LANES_MAX, writes=1)

    @property
    def pace(self) -> Pace:
        return METERED_PACE if self._metered else Pace()

    @property
    def has_clock(self) -> bool:
        """False for a bucket: its times are those of the machine that wrote them."""
        return self._clock.own

    @property
    def lock_dir(self) -> Path | None:
        """A bucket has no place for lock files; a folder does."""
        return None

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        await self._upgrade.done()
        self._poke.stir()
        outcomes = await self._commits.commit(writes)
        self._moves.note(write.run_id for write in writes)
        if any(map(wakes_others, writes)):
            wakes = any(wakes_others(write) and not _parks(write.task) for write in writes)
            await self._changed(f"commit {writes[0].run_id}", wakes=wakes)
        return outcomes

    async def _changed(self, what: str, *, wakes: bool = True) -> None:
        """There may be work: for the loops of this process, and if `wakes` for those of others."""
        self._watch.notify()
        if self._metered and wakes:
            await self._poke.tell(what)

    def _poke_listed(self, etag: str | None) -> None:
        if self._poke.listed(etag):
            self._watch.notify()

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        return await self._commits.landed(writes)

    async def run(self, run_id: RunId) -> RunRecord | None:
        view = await self._runs.load(run_id)
        return None if view is None else await self._runs.record(view, self._clock.now())

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        return await self._runs.events(run_id, after, limit)

    async def send(self, message: Message) -> Receipt:
        await self._upgrade.done()
        receipt = await self._inboxes.send(message)
        if not receipt.duplicate:
            await self._changed(f"message {message.run_id} {receipt.number}")
        return receipt

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        return await self._inboxes.read(run_id, after, limit)

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage:
        return await self._lists.find(query, cursor, limit)

    async def counts(self, query: RunQuery | None = None) -> dict[str, int]:
        return await self._counts.count(query or RunQuery())

    async def moved(self, cursor: str | None = None, limit: int = 1_000) -> tuple[list[RunId], str]:
        return await self._moves.since(cursor, limit)

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        return await self._lists.ids(prefix, limit)

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        tasks = await self._claims.claim(runner, wants, limit)
        if tasks:
            self._poke.stir()
        return tasks

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        done = await self._claims.release(run_id, runner, change, head_seq)
        if isinstance(change, Released):
            await self._changed(f"release {run_id}", wakes=done and not _parks(change))
        return done

    async def unread_runs(self, runner: RunnerId) -> list[RunId]:
        return await self._inboxes.unread_runs(runner)

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._inboxes.mark_read(run_id, runner, number)

    async def register(self, info: RunnerInfo) -> None:
        await self._upgrade.done()
        await self._runners.register(info)

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        return await self._runners.beat(runner, beat)

    async def runners(self, *, gone: int = 0, glance: bool = False) -> list[RunnerRecord]:
        return await self._runners.all(gone, glance=glance)

    async def retire(self, keep: int, limit: int) -> int:
        return await self._retirement.retire(keep, limit)

    async def unregistered(self) -> list[RunnerId]:
        return await self._runners.unregistered()

    def met(self) -> tuple[Broken, ...]:
        return self._runs.met.take()

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        return await self._runners.suspect(runner, beat_number)

    async def declare_dead(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        freed = await self._sweeps.declare_dead(runner, why, cause, evidence, beat_number)
        await self._changed(f"death {runner}", wakes=bool(freed))
        return freed

    async def orphans(self, limit: int) -> list[Orphan]:
        return await self._sweeps.orphans(limit)

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        adopted = await self._sweeps.requeue_orphan(orphan)
        await self._changed(f"orphan {orphan.run_id}", wakes=adopted)
        return adopted

    async def define(self, version: str, data: bytes) -> None:
        # One that is there already has this content: the key is its hash.
        with suppress(Exists):
            await self._bucket.create(layout.definition_key(version), data)

    async def definition(self, version: str) -> bytes | None:
        found = await self._bucket.get(layout.definition_key(version))
        return None if found is None else found[0]

    async def now(self) -> StoreTime:
        return StoreTime(self._clock.now())

    async def wait_for_change(self, timeout_s: float) -> bool:
        await self._runs.list_owing()
        if not self._metered:
            return await self._watch.wait(timeout_s)
        until = self._clock.monotonic() + timeout_s
        while True:
            left_s = until - self._clock.monotonic()
            looks_in_s = min(self._poke.due_in_s, self._claims.next_due_in_s())
            if looks_in_s <= 0.0:
                if await self._watch.wait(0.0):
                    return True
                await self._look_for_change()
                continue
            # A shorter wait may not move a clock at all, and this would never end.
            looks_in_s = max(looks_in_s, _WAIT_LEAST_S)
            if await self._watch.wait(max(min(left_s, looks_in_s), 0.0)):
                return True
            if left_s <= looks_in_s:
                return False

    async def _look_for_change(self) -> None:
        """The time of a task has come, or that of the next look at the poke."""
        await self._runs.list_owing()
        if self._claims.next_due_in_s() <= 0.0:
            self._claims.next_due = None
            self._watch.notify()
        elif await self._poke.look():
            self._watch.notify()

    async def reopen(self) -> ObjectStore:
        clock, own_clock = self._clock.parts
        return ObjectStore(await self._bucket.reopen(), clock, single_host=self._one_host, own_clock=own_clock)

    async def close(self) -> None:
        await self._bucket.close()


def _parks(change: object) -> bool:
    """Whether only a message can make it work for anybody."""
    return isinstance(change, Released) and change.due_at is None


__all__ = ["ObjectStore"]
