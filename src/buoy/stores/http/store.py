"""The HTTP store: a Buoy server, for runners and clients that reach nothing else.

Invariants: those of `buoy.ports.store.Store`, kept by the store behind the server. The server's clock is the store's
clock. A call without a whole answer raises `Unavailable`: the caller reads back, as after any unclear answer.
Absent on purpose: a self-fence by time. A runner that reaches no server starts no body, because no commit is answered;
what it has under way ends, and is written when the server is back, or fenced if another runner has taken the run over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import MESSAGE_BYTES_MAX
from buoy.core.log.events import Event
from buoy.core.times import StoreTime
from buoy.core.urls import shown_url
from buoy.errors import Problem, StoreUnusable, TooLarge
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
from buoy.stores.change_feed import ChangeFeed
from buoy.stores.http.calls import Calls
from buoy.stores.http.connection import Connections, parse_address
from buoy.stores.http.maintenance import HttpArchive, HttpIntegrity, HttpSchedules, HttpTokens
from buoy.stores.unreadable import Met

VERSION = 1
_POLL_S = 25.0
_POLL_PAUSE_S = 1.0
_GROUPS = 4


class HttpStore:
    """A store behind a server. Open it with `await HttpStore.open(url, token, clock=clock)`."""

    def __init__(self, url: str, token: str | None, clock: Clock) -> None:
        self._url = url
        self._token = token
        self._clock = clock
        self._met = Met()
        self._connections = Connections(parse_address(url), token, clock, self.name)
        self._calls = Calls(self._connections, self._met, self.name)
        self._call = self._calls.call
        self._feed = ChangeFeed(lambda: None)
        self._poll: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, token: str | None, *, clock: Clock) -> HttpStore:
        """The store of that server. Refused if the server speaks another version or denies the token."""
        store = cls(url, token, clock)
        try:
            hello = await store._calls.hello()
        except BaseException:
            await store.close()
            raise
        if hello.version != VERSION:
            await store.close()
            raise StoreUnusable(
                f"{store.name} speaks version {hello.version} of the store protocol, this Buoy version {VERSION}; "
                "upgrade the older one"
            )
        return store

    @property
    def name(self) -> str:
        return shown_url(self._url)

    @property
    def single_host(self) -> bool:
        return False

    @property
    def self_fencing(self) -> bool:
        return False

    @property
    def pace(self) -> Pace:
        return Pace()

    @property
    def has_clock(self) -> bool:
        return True

    @property
    def lock_dir(self) -> None:
        return None

    @property
    def commits_inline(self) -> bool:
        return False

    @property
    def lanes(self) -> Lanes:
        """A few groups at once: each is a round trip."""
        return Lanes(groups=_GROUPS)

    @property
    def archive(self) -> HttpArchive:
        return HttpArchive(self._calls)

    @property
    def integrity(self) -> HttpIntegrity:
        return HttpIntegrity(self._calls)

    @property
    def schedules(self) -> HttpSchedules:
        return HttpSchedules(self._calls)

    @property
    def tokens(self) -> HttpTokens:
        return HttpTokens()

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        found: list[Outcome] = await self._call("commit", writes=writes) if writes else []
        return found

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        found: list[Outcome | None] = await self._call("landed", writes=writes) if writes else []
        return found

    async def run(self, run_id: RunId) -> RunRecord | None:
        found: RunRecord | None = await self._call("run", run_id=run_id)
        return found

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        found: list[Event] = await self._call("events", run_id=run_id, after=after, limit=limit)
        return found

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage:
        found: RunPage = await self._call("find_runs", query=query, cursor=cursor, limit=limit)
        return found

    async def counts(self, query: RunQuery | None = None) -> dict[str, int]:
        found: dict[str, int] = await self._call("counts", query=query)
        return found

    async def moved(self, cursor: str | None = None, limit: int = 1_000) -> tuple[list[RunId], str]:
        found: tuple[list[RunId], str] = await self._call("moved", cursor=cursor, limit=limit)
        return found

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        found: list[RunId] = await self._call("run_ids", prefix=prefix, limit=limit)
        return found

    async def send(self, message: Message) -> Receipt:
        size = len(bytes(message.body))
        if size > MESSAGE_BYTES_MAX:
            raise TooLarge(
                f"the {message.kind} for {message.run_id} has {size:,} bytes, the limit is {MESSAGE_BYTES_MAX:,}; "
                "store it elsewhere and send a reference"
            )
        found: Receipt = await self._call("send", message=message)
        return found

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        found: list[Message] = await self._call("inbox", run_id=run_id, after=after, limit=limit)
        return found

    async def unread_runs(self, runner: RunnerId) -> list[RunId]:
        found: list[RunId] = await self._call("unread_runs", runner=runner)
        return found

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._call("mark_read", run_id=run_id, runner=runner, number=number)

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        found: list[Task] = await self._call("claim_tasks", runner=runner, wants=wants, limit=limit)
        return found

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        done: bool = await self._call("release", run_id=run_id, runner=runner, change=change, head_seq=head_seq)
        return done

    async def orphans(self, limit: int) -> list[Orphan]:
        found: list[Orphan] = await self._call("orphans", limit=limit)
        return found

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        done: bool = await self._call("requeue_orphan", orphan=orphan)
        return done

    async def register(self, info: RunnerInfo) -> None:
        await self._call("register", info=info)

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        done: bool = await self._call("beat", runner=runner, beat=beat)
        return done

    async def runners(self, *, gone: int = 0, glance: bool = False) -> list[RunnerRecord]:
        found: list[RunnerRecord] = await self._call("runners", gone=gone)
        return found

    async def retire(self, keep: int, limit: int) -> int:
        found: int = await self._call("retire", keep=keep, limit=limit)
        return found

    async def unregistered(self) -> list[RunnerId]:
        found: list[RunnerId] = await self._call("unregistered")
        return found

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        found: RunnerRecord | None = await self._call("suspect", runner=runner, beat_number=beat_number)
        return found

    async def declare_dead(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        found: int | None = await self._call(
            "declare_dead", runner=runner, why=why, cause=cause, evidence=evidence, beat_number=beat_number
        )
        return found

    async def define(self, version: str, data: bytes) -> None:
        await self._call("define", version=version, data=data)

    async def definition(self, version: str) -> bytes | None:
        found: bytes | None = await self._call("definition", version=version)
        return found

    def met(self) -> tuple[Broken, ...]:
        return self._met.take()

    async def now(self) -> StoreTime:
        found: StoreTime = await self._call("now")
        return found

    async def wait_for_change(self, timeout_s: float) -> bool:
        """One long poll serves all tasks of this process that wait."""
        if self._poll is None or self._poll.done():
            self._poll = asyncio.get_running_loop().create_task(self._follow(), name="buoy-http-changes")
        return await self._feed.wait(timeout_s)

    async def _follow(self) -> None:
        cursor = 0
        while True:
            try:
                found = await self._calls.changes(cursor, _POLL_S)
            except (Problem, msgspec.MsgspecError):
                # Only a hint was missed. Each waiting task looks by itself after its time.
                await asyncio.sleep(_POLL_PAUSE_S)
                continue
            if found != cursor:
                cursor = found
                self._feed.notify()

    async def reopen(self) -> HttpStore:
        return await HttpStore.open(self._url, self._token, clock=self._clock)

    async def close(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.wait([self._poll])
        await self._connections.close()
