"""The PostgreSQL store: one schema of a database, any number of processes on any number of hosts.

Invariants: those of `buoy.ports.store.Store`. The database's clock dates every record. A process has at most
`SESSIONS_MAX` sessions: two that write, one that reads, one that listens, and that of its heartbeat.
Absent on purpose: SQL. It is in `sql/`, by topic, under the names that the modules beside this one use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.events import Event
from buoy.core.times import StoreTime
from buoy.ports.host import Clock
from buoy.ports.pace import Lanes, Pace
from buoy.ports.records import (
    Beat,
    Broken,
    Committed,
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
from buoy.stores.postgres import logs, runs, tasks
from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.appends import Appends
from buoy.stores.postgres.archive import PostgresArchive
from buoy.stores.postgres.commit import commit_work
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.hints import Listener, Notifier
from buoy.stores.postgres.integrity import PostgresIntegrity
from buoy.stores.postgres.lanes import ReadLane, WriteLane
from buoy.stores.postgres.opening import Opened, Session, connect, open_database
from buoy.stores.postgres.schedules import PostgresSchedules
from buoy.stores.postgres.silence import Silence
from buoy.stores.postgres.tokens import PostgresTokens
from buoy.stores.unreadable import Met

WRITERS = 2
# Writers, reader and listener of the store, and the one session of the heartbeat's own store.
SESSIONS_MAX = WRITERS + 3


class PostgresStore:
    """A store in one schema of a database. Open it with `await PostgresStore.open(url, clock=clock)`."""

    def __init__(self, opened: Opened, clock: Clock, session: Session = Connection) -> None:
        self._opened = opened
        self._clock = clock
        self._session = session
        self._silence = Silence(lambda: self.name)
        self._writer = WriteLane(self._connect, self._silence, "buoy-pg-writer", WRITERS)
        self._reader = ReadLane(self._connect, self._silence, "buoy-pg-reader")
        self._appends = Appends(self._writer, clock)
        self._met = Met()
        self._feed = ChangeFeed(lambda: 0)
        self._notifier = Notifier(self._reader, opened.address.channel)
        self._listener = Listener(self._connect, self._notifier.token, self._feed.notify)

    @classmethod
    async def open(cls, url: str, *, clock: Clock, session: Session = Connection) -> PostgresStore:
        """The store at that address. Makes the schema, or brings it to this code's.

        `session`: makes a session out of a connection; tests give theirs another clock.
        """
        address = address_of(url)
        return cls(await asyncio.to_thread(open_database, address, session), clock, session)

    def _connect(self) -> Connection:
        return connect(self._opened.address, self._opened.sql, self._session)

    @property
    def name(self) -> str:
        return self._opened.name

    @property
    def single_host(self) -> bool:
        return False

    @property
    def self_fencing(self) -> bool:
        return True

    @property
    def commits_inline(self) -> bool:
        return True

    @property
    def lanes(self) -> Lanes:
        """One group for each writing session: the server syncs them together."""
        return Lanes(groups=WRITERS)

    @property
    def pace(self) -> Pace:
        return Pace()

    @property
    def has_clock(self) -> bool:
        return True

    @property
    def lock_dir(self) -> None:
        """None: runners prove their death by their process, or by their beats."""
        return

    @property
    def archive(self) -> PostgresArchive:
        return PostgresArchive(self._writer, self._reader)

    @property
    def integrity(self) -> PostgresIntegrity:
        return PostgresIntegrity(self._writer, self._reader, self._opened)

    @property
    def schedules(self) -> PostgresSchedules:
        return PostgresSchedules(self._writer, self._reader)

    @property
    def tokens(self) -> PostgresTokens:
        return PostgresTokens(self._writer, self._reader)

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if not writes:
            return []
        if len(writes) == 1 and await self._appends.commit(writes[0]):
            return [Committed(writes[0].events[-1].seq)]
        outcomes = await self._writer.write(commit_work(writes))
        if any(map(wakes_others, writes)):
            self._changed()
        return outcomes

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        return await self._reader.read(lambda c: runs.landed(c, writes))

    async def run(self, run_id: RunId) -> RunRecord | None:
        return await self._reader.read_one(runs.run_records, run_id)

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        return await self._reader.read_one(logs.logs_of, logs.Part(run_id, after, limit))

    async def send(self, message: Message) -> Receipt:
        receipt = await self._writer.write(runs.send_work(message))
        if not receipt.duplicate:
            self._changed()
        return receipt

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        return await self._reader.read_one(logs.inboxes_of, logs.Part(run_id, after, limit))

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage:
        return await self._reader.read(lambda c: runs.page_of_runs(c, query, cursor, limit))

    async def counts(self, query: RunQuery | None = None) -> dict[str, int]:
        return await self._reader.read(lambda c: runs.counts(c, query or RunQuery()))

    async def moved(self, cursor: str | None = None, limit: int = 1_000) -> tuple[list[RunId], str]:
        return await self._reader.read(lambda c: runs.moved(c, cursor, limit))

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        return await self._reader.read(lambda c: runs.run_ids(c, prefix, limit))

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        return await self._writer.write(tasks.claim_work(runner, wants, limit, self._met))

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        done = await self._writer.write(tasks.release_work(run_id, runner, change, head_seq))
        self._changed()
        return done

    async def unread_runs(self, runner: RunnerId) -> list[RunId]:
        return await self._reader.read(lambda c: tasks.unread_runs(c, runner))

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._writer.write(tasks.mark_read_work(run_id, runner, number))

    async def register(self, info: RunnerInfo) -> None:
        await self._writer.write(tasks.register_work(info))

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        return await self._writer.write(tasks.beat_work(runner, beat))

    async def runners(self, *, gone: int = 0, glance: bool = False) -> list[RunnerRecord]:
        return await self._reader.read(lambda c: tasks.all_runners(c, gone))

    async def retire(self, keep: int, limit: int) -> int:
        if not await self._reader.read(lambda c: tasks.may_retire(c, keep)):
            return 0
        return await self._writer.write(tasks.retire_work(keep, limit))

    async def unregistered(self) -> list[RunnerId]:
        """None ever: a runner registers in one transaction."""
        return []

    def met(self) -> tuple[Broken, ...]:
        return self._met.take()

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        return await self._writer.write(tasks.suspect_work(runner, beat_number))

    async def declare_dead(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        released = await self._writer.write(tasks.declare_dead_work(runner, why, cause, evidence, beat_number))
        self._changed()
        return released

    async def orphans(self, limit: int) -> list[Orphan]:
        return await self._reader.read(lambda c: tasks.orphans(c, limit))

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        requeued = await self._writer.write(tasks.requeue_work(orphan))
        self._changed()
        return requeued

    async def define(self, version: str, data: bytes) -> None:
        if await self.definition(version) is None:
            await self._writer.write(runs.define_work(version, data))

    async def definition(self, version: str) -> bytes | None:
        return await self._reader.read(lambda c: runs.definition(c, version))

    async def now(self) -> StoreTime:
        return await self._reader.read_one(runs.times, None)

    async def wait_for_change(self, timeout_s: float) -> bool:
        if not self._opened.pooled:
            self._listener.start()
        return await self._feed.wait(timeout_s)

    async def reopen(self) -> PostgresStore:
        """Another store on the same data. It checks nothing again, and connects when it is used."""
        return PostgresStore(self._opened, self._clock, self._session)

    async def close(self) -> None:
        await self._notifier.close()
        await asyncio.to_thread(self._listener.close)
        await self._writer.close()
        await self._reader.close()

    def _changed(self) -> None:
        """Tells this process at once, and the others by a notification."""
        self._feed.notify()
        self._notifier.notify()


__all__ = ["PostgresStore"]
