"""The harness of the contract's tests: several stores on the same data, and authors who write logs as owners do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.ports.host import Clock
from buoy.ports.records import Committed, Message, Outcome, RunnerInfo, TaskChange, Wants, Write
from buoy.ports.store import Store
from buoy.testing.clock import BehindClock, ManualClock

ANY = Wants()
# How far the clocks of processes are behind that of a store that has one.
_PROCESS_BEHIND_S = 7_200.0


class Contract:
    """Base of the contract's parts: how a store is opened. A second call for one place is a second process."""

    # Whether the store has a clock of its own.
    has_clock = False

    async def open(self, place: Path, clock: Clock) -> Store:
        raise NotImplementedError("open your store here")

    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        """For a store with a clock of its own: the store tells the time of `own_clock`, its process that of `clock`."""
        raise NotImplementedError("open your store here")


class StoreHarness:
    """One test's data, its clock and all the stores that were opened on it.

    `clock` is the clock of the store, if it has one, else of every process that is not said to be behind. The processes
    of a store with a clock are always behind it: a store that asks the clock of its process is found out.
    """

    def __init__(self, contract: Contract, place: Path) -> None:
        self.clock = ManualClock()
        self._contract = contract
        self._place = place
        self._opened: list[Store] = []
        self._nonces = count(1)

    async def open(self, behind_s: float = 0.0) -> Store:
        """One more process on the same data; its wall clock may be behind."""
        contract, place = self._contract, self._place
        if contract.has_clock:
            process = BehindClock(self.clock, behind_s + _PROCESS_BEHIND_S)
            store = await contract.open_timed(place, process, self.clock)
        else:
            store = await contract.open(place, BehindClock(self.clock, behind_s) if behind_s else self.clock)
        assert store.has_clock == contract.has_clock, "the contract's form fits the store"
        self._opened.append(store)
        return store

    async def open_many(self, count: int) -> list[Store]:
        return [await self.open() for _ in range(count)]

    async def close(self) -> None:
        for store in self._opened:
            await store.close()

    def author(self, run_id: str, *, behind_s: float = 0.0, **created: object) -> Author:
        """Writes that run, by a clock that may be behind. `created`: what its first event says (queue, env...)."""
        clock = BehindClock(self.clock, behind_s) if behind_s else self.clock
        return Author(RunId(run_id), clock, self._nonces, created)

    async def reader_of(self, store: Store, run_id: str) -> Author:
        """An author that read the log and can append after it."""
        author = self.author(run_id)
        author.log = await store.events(author.run_id)
        return author


C = TypeVar("C", bound=Contract)


def with_harness(test: Callable[[C, StoreHarness], Awaitable[None]]) -> Callable[[C, Path], None]:
    """Makes a test out of a coroutine function: opens the stores, runs it, closes everything."""

    # No functools.wraps: pytest would look through it and ask for a fixture named `harness`.
    def played(self: C, tmp_path: Path) -> None:
        asyncio.run(play(self, lambda harness: test(self, harness), tmp_path))

    played.__name__ = test.__name__
    played.__doc__ = test.__doc__
    return played


async def play(contract: Contract, test: Callable[[StoreHarness], Awaitable[None]], place: Path) -> None:
    """Runs one test on a harness of its own; for tests that have parameters."""
    harness = StoreHarness(contract, place)
    try:
        await test(harness)
    finally:
        await harness.close()


class Author:
    """Drafts the commits of one run and remembers what was committed, as its owner does."""

    def __init__(self, run_id: RunId, clock: Clock, nonces: Iterator[int], created: dict[str, object]) -> None:
        self.run_id = run_id
        self.log: list[e.Event] = []
        self._clock = clock
        self._created = created
        self._nonces = nonces

    def first(self, task: TaskChange | None = None) -> Write:
        """The draft that creates the run."""
        created = msgspec.structs.replace(_CREATED, **self._created)
        return self.draft(created, task=task)

    def draft(self, *bodies: e.Body, task: TaskChange | None = None, seen: int = 0) -> Write:
        """A commit on top of what this author knows. Nothing is remembered until `accept`."""
        after, nonce = len(self.log), f"nonce-{next(self._nonces)}"
        events = tuple(
            e.Event(
                seq=after + number,
                at=self._clock.now(),
                body=body,
                nonce=nonce if number == 1 else None,
            )
            for number, body in enumerate(bodies, 1)
        )
        return Write(self.run_id, after, events, document(fold(self.run_id, [*self.log, *events])), task, seen)

    def accept(self, write: Write) -> None:
        """The draft was committed."""
        self.log.extend(write.events)

    async def create(self, store: Store, task: TaskChange | None = None) -> Author:
        """Commits the first draft, which must succeed."""
        await self._commit(store, self.first(task))
        return self

    async def append(self, store: Store, *bodies: e.Body, task: TaskChange | None = None, seen: int = 0) -> Write:
        """Commits a draft, which must succeed."""
        return await self._commit(store, self.draft(*bodies, task=task, seen=seen))

    async def _commit(self, store: Store, write: Write) -> Write:
        outcome = await committed(store, write)
        assert outcome == Committed(write.after_seq + len(write.events)), outcome
        self.accept(write)
        return write


# A server puts the name of its token before the starter's own, unless they are the same.
STARTER = "tester"
_CREATED = e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"[17]"), by=STARTER)


async def committed(store: Store, write: Write) -> Outcome:
    """The outcome of one write."""
    (outcome,) = await store.commit([write])
    return outcome


def claimed(runner: str) -> e.Claimed:
    return e.Claimed(runner=runner, cause="created")


def started(number: int) -> e.StepStarted:
    return e.StepStarted(leaf=LeafId(f"charge#{number}"), name="charge", args=msgspec.Raw(b'[{"sum": 12}]'))


def completed(number: int) -> e.StepCompleted:
    return e.StepCompleted(leaf=LeafId(f"charge#{number}"), result=msgspec.Raw(b'{"receipt": "abc"}'))


def message(run_id: str, dedupe: str, body: bytes = b'{"to": "you"}') -> Message:
    return Message(RunId(run_id), "signal", dedupe, msgspec.Raw(body), by="contract")


async def register(store: Store, name: str) -> RunnerId:
    """A runner of that name, registered."""
    runner = RunnerId(name)
    await store.register(
        RunnerInfo(
            id=runner, host="host", boot_id="boot", pid_namespace="ns", pid=1, process_started="1", nonce=f"n-{name}"
        )
    )
    return runner


async def claim(store: Store, runner: RunnerId, wants: Wants = ANY, limit: int = 100) -> list[str]:
    """The ids of the runs whose tasks it got."""
    return [task.run_id for task in await store.claim_tasks(runner, wants, limit)]
