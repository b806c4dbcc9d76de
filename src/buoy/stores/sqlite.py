"""The SQLite store: one file, several processes on one machine, every answered commit on the disk.

Invariants: those of `buoy.ports.Store`. Commit means synced (write-ahead log, `synchronous=FULL`). One connection
writes and one reads per store; both are closed by `close`, and nothing is left running.
Absent on purpose: SQL. It stands next to the table it is about, in `sqlite_commit`, `sqlite_runs` and `sqlite_tasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from buoy.core.events import Event
from buoy.core.ids import RunId, RunnerId
from buoy.ports import (
    Beat,
    Broken,
    Clock,
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
from buoy.stores import sqlite_runs as runs
from buoy.stores import sqlite_tasks as tasks
from buoy.stores.file_identity import FileIdentity
from buoy.stores.sqlite_archive import SqliteArchive
from buoy.stores.sqlite_checkup import SqliteCheckup
from buoy.stores.sqlite_commit import commit_work, going_on, wakes_others
from buoy.stores.sqlite_lanes import ReadLane, WriteLane
from buoy.stores.sqlite_opening import open_file
from buoy.stores.sqlite_schema import Connection
from buoy.stores.sqlite_timetable import SqliteTimetable
from buoy.stores.unreadable import Met
from buoy.stores.watch import Watch

# More than this in one transaction, and the event loop would feel it.
SMALL_WRITES_MAX = 2
SMALL_CLAIMS_MAX = 8
# A process that has written so much will go on: a longer write-ahead log is worth its price (some 10 ms) to it.
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
    ) -> None:
        self._path = path
        self._read_only = read_only
        self._clock = clock
        self._writer = WriteLane(writer, path, f"buoy-writer-{path.name}", clock, identity)
        self._reader = ReadLane(reader, path, f"buoy-reader-{path.name}", identity)
        self._watch = Watch(self._writer.data_version)
        self._numbers: dict[RunId, int] = {}
        self._met = Met()
        self._until_busy = BUSY_WRITES

    @classmethod
    async def open(cls, path: Path, *, clock: Clock) -> SqliteStore:
        """The store at that path; made if it is not there, brought to today's schema if it is older.

        Where this user may not write it can still be looked at; every change is then refused.
        """
        path = path.absolute()
        opened = await asyncio.to_thread(open_file, path, _lock_dir(path))
        return cls(path, clock, opened.writer, opened.reader, read_only=opened.read_only, identity=opened.identity)

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    @property
    def one_host(self) -> bool:
        return True

    @property
    def prompt(self) -> bool:
        return True

    @property
    def keeps_time(self) -> bool:
        """False: its times are those of the machine that wrote them."""
        return False

    @property
    def lock_dir(self) -> Path:
        """Where the runners of this store keep their lock files."""
        return _lock_dir(self._path)

    @property
    def archive(self) -> SqliteArchive:
        return SqliteArchive(self._writer, self._reader)

    @property
    def checkup(self) -> SqliteCheckup:
        return SqliteCheckup(self._writer, self._reader, self._clock, read_only=self._read_only)

    @property
    def timetable(self) -> SqliteTimetable:
        return SqliteTimetable(self._writer, self._reader)

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if not writes:
            return []
        if self._until_busy > 0:
            self._until_busy -= len(writes)
            if self._until_busy <= 0:
                await self._writer.lengthen_log()
        if len(writes) == 1:
            values = going_on(writes[0], self._numbers)
            if values is not None and self._writer.go_on_now(values):
                return [Committed(writes[0].events[-1].seq)]
        work = commit_work(writes, self._clock.now(), self._numbers)
        done = self._writer.write_now(work) if len(writes) <= SMALL_WRITES_MAX else None
        outcomes = await self._writer.write(work, small=False) if done is None else done[0]
        if any(map(wakes_others, writes)):
            self._watch.notify()
        return outcomes

    async def run(self, run_id: RunId) -> RunRecord | None:
        return await self._reader.read(lambda c: runs.run_record(c, run_id, self._clock.now()), quick=True)

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await self._reader.read(lambda c: runs.short_log(c, run_id, after, limit), quick=True)
        if found is None:
            found = await self._reader.read(lambda c: runs.whole_log(c, run_id, after, limit))
        return found

    async def send(self, message: Message) -> Receipt:
        receipt = await self._writer.write(runs.send_work(message, self._clock.now()))
        if not receipt.duplicate:
            self._watch.notify()
        return receipt

    async def inbox(self, run_id: RunId, after: int = 0) -> list[Message]:
        return await self._reader.read(lambda c: runs.messages(c, run_id, after))

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage:
        return await self._reader.read(lambda c: runs.page_of_runs(c, query, cursor, limit, self._clock.now()))

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        return await self._reader.read(lambda c: runs.run_ids(c, prefix, limit))

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        now = self._clock.now()
        # Looking costs no lock: idle runners do not disturb those at work.
        due = await self._reader.read(lambda c: len(tasks.due_tasks(c, wants, limit, now)), quick=True)
        if not due:
            return []
        work = tasks.claim_work(runner, wants, limit, now, self._met)
        return await self._writer.write(work, small=due <= SMALL_CLAIMS_MAX)

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        done = await self._writer.write(tasks.release_work(run_id, runner, change, head_seq, self._clock.now()))
        self._watch.notify()
        return done

    async def pokes(self, runner: RunnerId) -> list[RunId]:
        return await self._reader.read(lambda c: tasks.pokes(c, runner), quick=True)

    async def seen(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._writer.write(tasks.seen_work(run_id, runner, number))

    async def register(self, info: RunnerInfo) -> None:
        await self._writer.write(tasks.register_work(info, self._clock.now()))

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        return await self._writer.write(tasks.beat_work(runner, beat, self._clock.now()))

    async def runners(self, *, gone: bool = False) -> list[RunnerRecord]:
        return await self._reader.read(lambda c: tasks.all_runners(c, gone=gone))

    async def unregistered(self) -> list[RunnerId]:
        """None ever: a runner registers in one transaction."""
        return []

    def met(self) -> tuple[Broken, ...]:
        return self._met.take()

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        return await self._writer.write(tasks.suspect_work(runner, beat_number, self._clock.now()))

    async def bury(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        work = tasks.bury_work(runner, why, cause, evidence, self._clock.now(), beat_number)
        released = await self._writer.write(work, small=False)
        self._watch.notify()
        return released

    async def orphans(self, limit: int) -> list[Orphan]:
        return await self._reader.read(lambda c: tasks.orphans(c, limit))

    async def adopt(self, orphan: Orphan) -> bool:
        adopted = await self._writer.write(tasks.adopt_work(orphan, self._clock.now()))
        self._watch.notify()
        return adopted

    async def define(self, version: str, data: bytes) -> None:
        if await self.definition(version) is None:
            await self._writer.write(runs.define_work(version, data))

    async def definition(self, version: str) -> bytes | None:
        return await self._reader.read(lambda c: runs.definition(c, version))

    async def now(self) -> float:
        return self._clock.now()

    async def changed(self, timeout_s: float) -> bool:
        return await self._watch.wait(timeout_s)

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()


def _lock_dir(path: Path) -> Path:
    return path.with_name(f"{path.name}-runners")


__all__ = ["SqliteStore"]
