"""The world in which requests are counted: one storage, several processes on it, and time that is skipped.

Runners are the real ones. Those of `worker` have no loops that poll, so that each operation is counted by itself;
`idle_worker` has all of its loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import NamedTuple, Protocol, runtime_checkable

from counting_bucket import CountingBucket, Meter, Requests

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import SWEEP_LOOKS_MAX
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.client.client import Client
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.services.heartbeat import Heartbeat
from buoy.host.threads import SystemThreads
from buoy.operations.workers.scheduler import Scheduler
from buoy.ports.records import Task, Wants
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.recovery.sweep.sweeper import Sweeper
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.store import ObjectStore
from buoy.testing.local_host import KnownDeaths, local_worker, runner_info
from buoy.testing.skipping import SkippingClock, skipping_time

# Makes an empty bucket of that name.
MakeBucket = Callable[[str], Awaitable[Bucket]]

_SETTLED_S = 0.001


class CountedIds:
    """The same ids in every round: a runner's id decides when it sweeps."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count(1)

    def new(self, prefix: str = "") -> str:
        return f"{prefix}{self._name}-{next(self._numbers):06}"

    def nonce(self) -> str:
        return self.new()


class Span:
    """What was requested inside of a `with`; known after it."""

    requests = Requests()


class Sizes(NamedTuple):
    """How much stands in the storages of the cases with many runs."""

    active: int = 1_000
    finished: int = 100_000
    gone: int = 10_000


@runtime_checkable
class Billed(Protocol):
    """A bucket whose requests are counted on their way, too."""

    def billed(self) -> Requests: ...


class World:
    """One storage. `bucket`: the way to it that is not counted."""

    def __init__(self, bucket: Bucket, clock: SkippingClock, sizes: Sizes) -> None:
        self.meter = Meter()
        self.clock = clock
        self.sizes = sizes
        self.bucket = bucket
        self._stores: list[ObjectStore] = []
        self._runners: list[Runner] = []

    async def store(self) -> ObjectStore:
        """As one more process opens it."""
        store = await ObjectStore.on(CountingBucket(await self.bucket.reopen(), self.meter), clock=self.clock)
        self._stores.append(store)
        return store

    async def client(self) -> Client:
        """A process without a runner."""
        return Client(
            await self.store(), Registry(), clock=self.clock, ids=CountedIds("client"), liveness=KnownDeaths(),
            actor="client",
        )  # fmt: skip

    async def runner(
        self, name: str, *workflows: Workflow[..., object], queues: tuple[str, ...] = ("default",)
    ) -> Runner:
        """One that has not begun."""
        registry = Registry()
        for each in workflows:
            registry.add(each)
        info = runner_info(name, registry, queues)
        store, ids, options = await self.store(), CountedIds(name), RunnerOptions(step_threads=1)
        worker = local_worker(store, registry, info, self.clock, ids, SystemThreads(), options, KnownDeaths())
        runner = worker.runner
        self._runners.append(runner)
        return runner

    async def worker(
        self, name: str, *workflows: Workflow[..., object], queues: tuple[str, ...] = ("default",)
    ) -> Runner:
        """A runner that looks for work only when the case calls for it."""
        runner = await self.runner(name, *workflows, queues=queues)
        runner.intake.start = lambda *, takes_work: None
        await runner.start()
        await self.settle()
        return runner

    async def close(self) -> None:
        for runner in self._runners:
            await runner.stop("stop", 1.0)
        for store in self._stores:
            await store.close()

    async def settle(self) -> None:
        """Until nothing is under way."""
        before = None
        while before != len(self.meter.trace) or self.meter.outside.busy:
            before = len(self.meter.trace)
            await asyncio.sleep(_SETTLED_S)

    @contextmanager
    def counted(self) -> Iterator[Span]:
        """Where something between this process and the storage counts too, both must agree."""
        span, before, billed = Span(), self.meter.total, self._billed()
        under_way = self.meter.outside.busy
        yield span
        span.requests = self.meter.total - before
        also = None if under_way or self.meter.outside.busy else self._billed()
        if billed is not None and also is not None:
            assert also - billed == span.requests, f"counted here: {span.requests}; by the proxy: {also - billed}"

    def _billed(self) -> Requests | None:
        return self.bucket.billed() if isinstance(self.bucket, Billed) else None


def client_of(runner: Runner) -> Client:
    """A client in the runner's own process."""
    return Client(
        runner.store, runner.registry, clock=runner.clock, ids=runner.ids, liveness=KnownDeaths(), runner=runner,
        actor=runner.id,
    )  # fmt: skip


def sweeper_of(runner: Runner) -> Sweeper:
    return Sweeper(
        runner.store, KnownDeaths(), me=runner.id, client=client_of(runner),
        options=SweepOptions(looks_max=SWEEP_LOOKS_MAX),
    )  # fmt: skip


async def claim(runner: Runner) -> list[Task]:
    """What the intake asks the store for."""
    info = runner.info
    wants = Wants(queues=info.queues, workflows=tuple(info.workflows), stack=info.stack, env=info.env)
    return await runner.store.claim_tasks(runner.id, wants, 100)


async def take_all(world: World, runner: Runner) -> None:
    for task in await claim(runner):
        await runner.intake.take(task)
    await world.settle()


async def read_inboxes(world: World, runner: Runner) -> None:
    await runner.intake.inboxes.read()
    await world.settle()


@asynccontextmanager
async def idle_worker(world: World, name: str, *workflows: Workflow[..., object]) -> AsyncIterator[Runner]:
    """A worker with all of its loops, as `buoy worker` has them."""
    runner = await world.runner(name, *workflows)
    sweeper, scheduler = sweeper_of(runner), Scheduler(runner.store, clock=world.clock, ids=runner.ids)
    beats = Heartbeat(runner, runner.store.reopen, fences=not runner.store.single_host)
    runner.sweep_health = sweeper.health
    await runner.start()
    beating = asyncio.create_task(beats.run())
    sweeper.start()
    scheduler.start()
    try:
        yield runner
    finally:
        await sweeper.stop()
        await scheduler.stop()
        beats.stop()
        await beating


@asynccontextmanager
async def opened(make: MakeBucket, name: str, sizes: Sizes = Sizes()) -> AsyncIterator[World]:
    """An empty storage, and a clock that is skipped while it is looked at."""
    clock = SkippingClock()
    bucket = await make(name)
    world = World(bucket, clock, sizes)

    def stuck() -> None:
        raise RuntimeError(f"{name}: nothing can happen any more, and the count is not over")

    with skipping_time(asyncio.get_running_loop(), clock, world.meter.outside, lambda: False, stuck):
        # From zero, not from the machine's uptime: with that the sums of times were rounded differently on each day,
        # and a beat fell into a count or just outside of it.
        clock.begin_loop(0.0)
        yield world
        await world.close()
    await bucket.close()


async def leave_gone(world: World, first: int, end: int) -> None:
    """Runners of these numbers say good-bye."""
    store = await world.store()
    for each in range(first, end):
        runner = RunnerId(f"gone-{each:04}")
        await store.register(runner_info(runner, Registry(), ("default",)))
        await store.declare_dead(runner, "stopped", cause="interrupted", evidence={"runner": runner})


def run_of(number: int) -> RunId:
    return RunId(f"run-{number:04}")
