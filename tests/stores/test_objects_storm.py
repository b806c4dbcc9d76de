"""Many processes on one storage, in seeded disorder: crashes, lost answers and hasty declarations of death at any call.

Every run waits for its messages and ends when it has seen all of them. So a lost wake-up, message, task or run shows as
a run that never ends.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.errors import Unavailable
from buoy.ports.records import Committed, Ended, FencedOut, Held, Released, RunQuery, TaskChange, Wants, Write
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.harness import Author, claimed, message, register
from buoy.testing.skipping import Outside, SkippingClock, skipping_time

from .object_world import Crash

RUNS = 4
MESSAGES = 3
WORKERS = 3
ROUNDS_MAX = 400


class Storm:
    """One storage and its processes. The seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        # Also the loop's: a sender that pauses waits for rounds of the sweeper, however quick the machine is.
        self.clock = SkippingClock()
        self.data = MemoryData()
        self.calm = False
        self.names = iter(range(10**6))
        self.over = False

    async def process(self, *, crashes: bool) -> ObjectStore:
        dead = False

        async def on_call(operation: str, key: str, phase: str) -> None:
            nonlocal dead
            for _ in range(self.rng.randrange(3)):
                await asyncio.sleep(0)
            if dead:
                raise Crash
            if self.calm:
                return
            chance = self.rng.random()
            if crashes and chance < 0.004:
                dead = True
                raise Crash
            if chance < 0.02:
                raise Unavailable(f"{operation} {key} {phase}")

        return ObjectStore(MemoryBucket(self.data, on_call), self.clock)

    def done(self) -> bool:
        return self.over

    async def worker(self) -> None:
        """A runner, and after each of its deaths its successor. Some are declared dead while they live."""
        while not self.done():
            runner = RunnerId(f"w{next(self.names)}")
            try:
                store = await self.process(crashes=True)
                await _patiently(lambda store=store, runner=runner: register(store, runner))  # type: ignore[misc]
                while not self.done() and not (not self.calm and self.rng.random() < 0.01):
                    await self.work(store, runner)
            except Crash:
                pass
            other = await self.process(crashes=False)
            why = "dead or not"
            await _patiently(
                lambda runner=runner, other=other: other.declare_dead(runner, why, cause="taken_over", evidence={})  # type: ignore[misc]
            )

    async def work(self, store: ObjectStore, runner: RunnerId) -> None:
        await asyncio.sleep(0)
        try:
            tasks = await store.claim_tasks(runner, Wants(), 2)
        except Unavailable:
            return
        for task in tasks:
            await self.drive(store, runner, task.run_id)

    async def drive(self, store: ObjectStore, runner: RunnerId, run_id: RunId) -> None:
        """Takes the run over, looks at its messages, and waits or ends."""
        log = await _patiently(lambda: store.events(run_id))
        assert not document(fold(run_id, log)).ended
        if not await self.append(store, run_id, log, claimed(runner), Held(runner)):
            # Fenced before it began. What it was given is taken back from it, or it gives it back.
            again = Released(due_at=self.clock.now(), now=self.clock.now())
            await _patiently(lambda: store.release(run_id, runner, again))
            return
        while True:
            inbox = await _patiently(lambda: store.inbox(run_id))
            seen = len(inbox)
            if seen == MESSAGES:
                await self.append(store, run_id, log, e.WorkflowCompleted(), Ended())
                return
            await _patiently(lambda seen=seen: store.mark_read(run_id, runner, seen))  # type: ignore[misc]
            if self.rng.random() < 0.5:
                leaf = LeafId(f"s#{len(log)}")
                wait = e.SignalWaited(leaf=leaf, name="s")
                due_at = None if self.rng.random() < 0.7 else self.clock.now() + 10**6
                await self.append(store, run_id, log, wait, Released(due_at=due_at, now=self.clock.now(), seen=seen))
                return
            if run_id not in await _patiently(lambda: store.unread_runs(runner)):
                await _patiently(lambda seen=seen: store.release(run_id, runner, Released(None, now=0.0, seen=seen)))  # type: ignore[misc]
                return

    async def append(
        self, store: ObjectStore, run_id: RunId, log: list[e.Event], body: e.Body, task: TaskChange
    ) -> bool:
        """As the journal does it. False: fenced."""
        event = e.Event(len(log) + 1, self.clock.now(), body, nonce=f"n{next(self.names)}")
        write = Write(run_id, len(log), (event,), document(fold(run_id, [*log, event])), task)
        while True:
            try:
                (outcome,) = await store.commit([write])
            except Unavailable:
                outcome = FencedOut(0)
            there = await _patiently(lambda: store.events(run_id, after=len(log), limit=1))
            if there:
                mine = there[0].nonce == event.nonce
                assert mine or not isinstance(outcome, Committed)
                log.append(event)
                return mine

    async def sender(self, run_id: RunId) -> None:
        store = await self.process(crashes=False)
        await asyncio.sleep(0)
        numbers = []
        for number in range(MESSAGES):
            for _ in range(self.rng.randrange(60)):
                await asyncio.sleep(0)
            receipt = await _patiently(lambda number=number: store.send(message(run_id, f"m{number}")))  # type: ignore[misc]
            numbers.append(receipt.number)
        assert numbers == [1, 2, 3]

    async def sweeper(self) -> None:
        store = await self.process(crashes=False)
        for turn in range(ROUNDS_MAX):
            for _ in range(50):
                await asyncio.sleep(0)
            self.clock.advance(1.0)
            self.calm = turn > 60
            for orphan in await _patiently(lambda: store.orphans(10)):
                await _patiently(lambda orphan=orphan: store.requeue_orphan(orphan))  # type: ignore[misc]
            ended = await _patiently(lambda: store.find_runs(RunQuery(statuses=("completed",))))
            if len(ended.runs) == RUNS:
                self.over = True
                return
        records = (await store.find_runs(RunQuery())).runs
        raise AssertionError([record for record in records if not record.document.ended])


async def _patiently(call):  # type: ignore[no-untyped-def]
    """Asks until there is an answer."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0)


async def _play(seed: int) -> None:
    storm = Storm(seed)
    with skipping_time(asyncio.get_running_loop(), storm.clock, Outside(), lambda: False, lambda: None):
        await _blow(storm)


async def _blow(storm: Storm) -> None:
    storm.calm = True
    store = await storm.process(crashes=False)
    names = [RunId(f"run-{number}") for number in range(RUNS)]
    for name in names:
        await Author(name, storm.clock, storm.names, {}).create(store)
    storm.calm = False
    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(storm.worker())
        for name in names:
            group.create_task(storm.sender(name))
        group.create_task(storm.sweeper())
    storm.calm = True
    for name in names:
        log = await store.events(name)
        assert sum(isinstance(event.body, e.WorkflowCompleted) for event in log) == 1
        assert fold(name, log).anomalies == []


@pytest.mark.parametrize("seed", range(25))
def test_every_run_ends_once_whatever_happens_to_the_processes(seed: int) -> None:
    asyncio.run(_play(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_every_run_ends_once_in_many_more_storms(block: int) -> None:
    for seed in range(1_000 + block * 50, 1_000 + block * 50 + 50):
        asyncio.run(_play(seed))
