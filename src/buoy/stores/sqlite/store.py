"""The SQLite store: one file, several processes on one machine, every answered commit on the disk.

Invariants: those of `buoy.ports.store.Store`. Commit means synced (write-ahead log, `synchronous=FULL`). One connection
writes and one reads per store; both are closed by `close`, and nothing is left running.
Absent on purpose: SQL. It stands next to the table it is about, in `commit`, `runs` and `tasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

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
from buoy.stores.file_identity import FileIdentity
from buoy.stores.sqlite import runs, tasks
from buoy.stores.sqlite.archive import SqliteArchive
from buoy.stores.sqlite.commit import commit_work, going_on
from buoy.stores.sqlite.integrity import SqliteIntegrity
from buoy.stores.sqlite.lanes import ReadLane, WriteLane
from buoy.stores.sqlite.moves import moved
from buoy.stores.sqlite.opening import open_file
from buoy.stores.sqlite.schedules import SqliteSchedules
from buoy.stores.sqlite.schema import Connection
from buoy.stores.sqlite.tokens import SqliteTokens
from buoy.stores.store_clock import StoreClock
from buoy.stores.unreadable import Met

# More than this in one transaction, and the event loop would feel it.
SMALL_WRITES_MAX = 2
SMALL_CLAIMS_MAX = 8
# A process that has written so much will write more: a longer write-ahead log is worth its price (some 10 ms) to it.
BUSY_WRITES = 64


class SqliteStore:
    """A store in one SQLite file. Open it with `await SqliteStore.open(path, clock=clock)`."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        writer: Connection,
        reader: Connection,
        *,
        read_only: bool = False,
        identity: FileIdentity | None = None,
        own_clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._read_only = read_only
        self._clock = StoreClock(clock, own_clock)
        self._writer = WriteLane(writer, path, f"buoy-writer-{path.name}", clock, identity)
        self._reader = ReadLane(reader, path, f"buoy-reader-{path.name}", identity)
        self._watch = ChangeFeed(self._writer.data_version)
        self._numbers: dict[RunId, int] = {}
        self._met = Met()
        self._until_busy = BUSY_WRITES

    @classmethod
    async def open(cls, path: Path, *, clock: Clock, own_clock: Clock | None = None) -> SqliteStore:
        """The store at that path; made if it is not there, brought to today's schema if it is older.

        Where this user may not write it can still be looked at; every change is then refused. `own_clock`: one that
        all who open this store share. A file has none; tests show with it what a server with a clock does.
        """
        path = path.absolute()
        opened = await asyncio.to_thread(open_file, path, _lock_dir(path))
        return cls(
            path, clock, opened.writer, opened.reader,
            read_only=opened.read_only, identity=opened.identity, own_clock=own_clock,
        )  # fmt: skip

    @property
    def name(self) -> str:
        return f"sqlite:///{self._path}"

    @property
    def single_host(self) -> bool:
        return True

    @property
    def self_fencing(self) -> bool:
        return False

    @property
    def commits_inline(self) -> bool:
        return True

    @property
    def lanes(self) -> Lanes:
        """One group at a time: there is one writer, and the runs of a group share its sync."""
        return Lanes()

    @property
    def pace(self) -> Pace:
        return Pace()

    @property
    def has_clock(self) -> bool:
        """False for a file: its times are those of the machine that wrote them."""
        return self._clock.own

    @property
    def lock_dir(self) -> Path:
        """Where the runners of this store keep their lock files."""
        return _lock_dir(self._path)

    @property
    def archive(self) -> SqliteArchive:
        return SqliteArchive(self._writer, self._reader, self._clock)

    @property
    def integrity(self) -> SqliteIntegrity:
        return SqliteIntegrity(self._writer, self._reader, self._clock, read_only=self._read_only)

    @property
    def schedules(self) -> SqliteSchedules:
        return SqliteSchedules(self._writer, self._reader)

    @property
    def tokens(self) -> SqliteTokens:
        return SqliteTokens(self._writer, self._reader)

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if not writes:
            return []
        if self._until_busy > 0:
            self._until_busy -= len(writes)
            if self._until_busy <= 0:
                await self._writer.preallocate_wal()
        if len(writes) == 1:
            values = going_on(writes[0], self._numbers, self._clock)
            if values is not None and self._writer.go_on_now(values):
                return [Committed(writes[0].events[-1].seq)]
        work = commit_work(writes, self._clock, self._numbers)
        done = self._writer.write_now(work) if len(writes) <= SMALL_WRITES_MAX else None
        outcomes = await self._writer.write(work, small=False) if done is None else done[0]
        if any(map(wakes_others, writes)):
            self._watch.notify()
        return outcomes

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        return await self._reader.read(lambda c: runs.landed(c, writes), quick=len(writes) <= SMALL_WRITES_MAX)

    async def run(self, run_id: RunId) -> RunRecord | None:
        return await self._reader.read(lambda c: runs.run_record(c, run_id, self._clock), quick=True)

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await self._reader.read(lambda c: runs.short_log(c, run_id, after, limit), quick=True)
        if found is None:
            found = await self._reader.read(lambda c: runs.whole_log(c, run_id, after, limit))
        return found

    async def send(self, message: Message) -> Receipt:
        receipt = await self._writer.write(runs.send_work(message, self._clock))
        if not receipt.duplicate:
            self._watch.notify()
        return receipt

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        return await self._reader.read(lambda c: runs.messages(c, run_id, after, limit))

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage:
        return await self._reader.read(lambda c: runs.page_of_runs(c, query, cursor, limit, self._clock))

    async def counts(self, query: RunQuery | None = None) -> dict[str, int]:
        return await self._reader.read(lambda c: runs.counts(c, query or RunQuery()))

    async def moved(self, cursor: str | None = None, limit: int = 1_000) -> tuple[list[RunId], str]:
        return await self._reader.read(lambda c: moved(c, cursor, limit))

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        return await self._reader.read(lambda c: runs.run_ids(c, prefix, limit))

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        now = self._clock.now()
        # Looking costs no lock: idle runners do not disturb those at work.
        due = await self._reader.read(lambda c: len(tasks.due_tasks(c, wants, limit, now)), quick=True)
        if not due:
            return []
        work = tasks.claim_work(runner, wants, limit, self._clock, self._met)
        return await self._writer.write(work, small=due <= SMALL_CLAIMS_MAX)

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        done = await self._writer.write(tasks.release_work(run_id, runner, change, head_seq, self._clock))
        self._watch.notify()
        return done

    async def unread_runs(self, runner: RunnerId) -> list[RunId]:
        return await self._reader.read(lambda c: tasks.unread_runs(c, runner), quick=True)

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._writer.write(tasks.seen_work(run_id, runner, number))

    async def register(self, info: RunnerInfo) -> None:
        await self._writer.write(tasks.register_work(info, self._clock.now()))

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        return await self._writer.write(tasks.beat_work(runner, beat, self._clock.now()))

    async def runners(self, *, gone: int = 0, glance: bool = False) -> list[RunnerRecord]:
        return await self._reader.read(lambda c: tasks.all_runners(c, gone))

    async def retire(self, keep: int, limit: int) -> int:
        if not await self._reader.read(lambda c: tasks.may_retire(c, keep)):
            return 0
        return await self._writer.write(tasks.retire_work(keep, limit), small=False)

    async def unregistered(self) -> list[RunnerId]:
        """None ever: a runner registers in one transaction."""
        return []

    def met(self) -> tuple[Broken, ...]:
        return self._met.take()

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        return await self._writer.write(tasks.suspect_work(runner, beat_number, self._clock.now()))

    async def declare_dead(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        work = tasks.declare_dead_work(runner, why, cause, evidence, self._clock.now(), beat_number)
        released = await self._writer.write(work, small=False)
        self._watch.notify()
        return released

    async def orphans(self, limit: int) -> list[Orphan]:
        return await self._reader.read(lambda c: tasks.orphans(c, limit))

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        adopted = await self._writer.write(tasks.adopt_work(orphan, self._clock.now()))
        self._watch.notify()
        return adopted

    async def define(self, version: str, data: bytes) -> None:
        if await self.definition(version) is None:
            await self._writer.write(runs.define_work(version, data))

    async def definition(self, version: str) -> bytes | None:
        return await self._reader.read(lambda c: runs.definition(c, version))

    async def now(self) -> StoreTime:
        return StoreTime(self._clock.now())

    async def wait_for_change(self, timeout_s: float) -> bool:
        return await self._watch.wait(timeout_s)

    async def reopen(self) -> SqliteStore:
        clock, own_clock = self._clock.parts
        return await SqliteStore.open(self._path, clock=clock, own_clock=own_clock)

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()


def _lock_dir(path: Path) -> Path:
    return path.with_name(f"{path.name}-runners")


__all__ = ["SqliteStore"]
