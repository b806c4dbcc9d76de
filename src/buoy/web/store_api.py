"""Store API: the server half of `ports/rpc`. Carries out the calls of remote runners and clients on the store here.

Invariants: a commit is answered when it is durable. Commits of all remote runners share the groups of one journal.
A run that is started, a request and a recovery bear the name of the caller's token (`signatures`).
A server that has just come up declares no runner dead for its silence: while the server was away no beat could arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from buoy.core.limits import SUSPECT_AFTER_S
from buoy.errors import BadInput, Problem
from buoy.ports.host import Clock
from buoy.ports.records import Outcome, Write
from buoy.ports.rpc import CALLS, Failed, Hello, Look, Reply, Seen, error_name
from buoy.ports.store import Store
from buoy.web.problems import kind_of
from buoy.web.signatures import signed, signed_write

_LOG = logging.getLogger("buoy.web")
VERSION = 1
_WAIT_S = 30.0
_LOOK_MAX_S = 60.0
# So many broken index entries are reported at once; their repair makes room for the next.
_TROUBLES_MAX = 1_000


class RemoteWrites(Protocol):
    """What commits the writes of all remote runners in shared groups."""

    def start(self) -> None: ...

    def submit(self, write: Write, done: Callable[[Outcome], None], /) -> None: ...

    async def close(self, *, patience_s: float) -> bool: ...


class StoreApi:
    """The calls of one store. `start` before the first call."""

    def __init__(
        self, store: Store, journal: RemoteWrites, clock: Clock, buoy_version: str, young_s: float = SUSPECT_AFTER_S
    ) -> None:
        self._store = store
        self._clock = clock
        self._buoy_version = buoy_version
        self._journal = journal
        # How long this server counts as one that has just come up.
        self._young_s = young_s
        self._began = clock.monotonic()
        self._changes = 1
        self._stopping = False
        self._changed = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        # Called after each group that a remote runner committed here.
        self.committed: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._journal.start()
        self._follower = asyncio.get_running_loop().create_task(self._follow(), name="buoy-web-changes")

    def hang_up(self) -> None:
        """Answers all who wait for a change: a server that stops waits for its requests."""
        self._stopping = True
        self._changed.set()

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self._journal.close(patience_s=10.0)

    @property
    def age_s(self) -> float:
        return self._clock.monotonic() - self._began

    async def answer(self, name: str, body: bytes, caller: str) -> tuple[int, bytes]:
        """The status and the body of the answer to a call. `caller`: the name of the token."""
        try:
            return 200, await self._answer(name, body, caller)
        except Problem as error:
            return kind_of(error).status, msgspec.json.encode(Failed(error_name(error), str(error)))

    async def _answer(self, name: str, body: bytes, caller: str) -> bytes:
        if name == "hello":
            return msgspec.json.encode(Hello(self._store.name, VERSION, self.age_s, self._buoy_version))
        if name == "changes":
            return msgspec.json.encode(Seen(await self._next_change(body)))
        call = CALLS.get(name)
        if call is None:
            raise BadInput(f"unknown call {name[:100]!r}; this server speaks version {VERSION} of the store protocol")
        arguments = call.decode_arguments(body)
        if name == "send":
            arguments["message"] = signed(arguments["message"], caller)
        elif name == "commit":
            arguments["writes"] = [signed_write(write, caller) for write in arguments["writes"]]
        result = await self._carry_out(call.part, call.method, arguments)
        return msgspec.json.encode(Reply(call.encode_result(result), self._store.met()))

    async def _carry_out(self, part: str, method: str, arguments: dict[str, Any]) -> Any:
        match part, method:
            case "", "commit":
                return await self._commit(arguments["writes"])
            case "", "declare_dead" if arguments["beat_number"] is not None and self.age_s < self._young_s:
                return None
            case "integrity", "index_troubles":
                found = self._store.integrity.index_troubles(**arguments)
                return [each async for each in found if each is not None][:_TROUBLES_MAX]
            case _:
                target = getattr(self._store, part) if part else self._store
                return await getattr(target, method)(**arguments)

    async def _commit(self, writes: list[Write]) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Outcome]] = [loop.create_future() for _ in writes]
        for write, future in zip(writes, futures, strict=True):
            self._journal.submit(write, lambda outcome, future=future: _settle(future, outcome))  # type: ignore[misc]
        outcomes = await asyncio.gather(*futures)
        self.committed()
        return outcomes

    async def _next_change(self, body: bytes) -> int:
        try:
            look = msgspec.json.decode(body, type=Look)
        except msgspec.MsgspecError as error:
            raise BadInput(f"the look for changes has the wrong form: {error}") from error
        if look.cursor == self._changes and not self._stopping:
            try:
                async with asyncio.timeout(min(max(look.timeout_s, 0.0), _LOOK_MAX_S)):
                    await self._changed.wait()
            except TimeoutError:
                return self._changes
        return self._changes

    async def _follow(self) -> None:
        """Reports each change to all waiting requests. It is one task, so the store's own feed has one position."""
        while True:
            try:
                if not await self._store.wait_for_change(_WAIT_S):
                    continue
            except Exception as error:  # noqa: BLE001 - reported; without this task no client would hear of changes
                _LOG.warning("the store reports no changes now: %s", error)
                await asyncio.sleep(1.0)
            self._changes += 1
            waiting, self._changed = self._changed, asyncio.Event()
            waiting.set()


def _settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
