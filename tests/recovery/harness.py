"""Where runs are left behind on purpose: a store, runners that die when a test says so, logs as crashes left them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import Document, document
from buoy.core.log.state import State, fold
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.host.ids import SystemIds
from buoy.ports.records import (
    Committed,
    Evidence,
    Held,
    Released,
    RunnerInfo,
    RunnerRecord,
    RunRecord,
    TaskChange,
    Write,
)
from buoy.ports.store import Store
from buoy.stores import open_store
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import ANY
from buoy.testing.deaths import InlineLiveness
from tests.patience import PATIENCE_S

KINDS = ("sqlite", "file")
# The same store as in a folder, without the disk: for those who make very many of them.
QUICK_KINDS = ("sqlite", "objects")


class Deaths(InlineLiveness):
    """Liveness as the test says: every runner lives but those named."""

    def __init__(self) -> None:
        self.dead: set[str] = set()

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        return {"proof": "lock free", "host": record.info.host} if record.info.id in self.dead else None

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        return {"proof": "lock free"} if runner in self.dead else None


class RecoveryHarness:
    """A store with what lies around in it."""

    def __init__(self, store: Store, clock: ManualClock, deaths: Deaths) -> None:
        self.store = store
        self.clock = clock
        self.deaths = deaths
        self.client = self.client_of(store)

    def client_of(self, store: Store, actor: str = "sweeper-1") -> Client:
        return Client(
            store, Registry(), clock=self.clock, ids=SystemIds(), liveness=self.deaths, actor=actor
        )  # fmt: skip

    async def runner(self, name: str, *, dead: bool = False, **info: Any) -> RunnerId:
        runner = RunnerId(name)
        await self.store.register(
            RunnerInfo(
                id=runner,
                host="host",
                boot_id="boot",
                pid_namespace="ns",
                pid=7,
                process_started="1",
                nonce=name,
                **info,
            )
        )
        if dead:
            self.deaths.dead.add(name)
        return runner

    async def plant(
        self,
        run_id: str,
        *bodies: e.Body,
        task: TaskChange | None = None,
        lie: dict[str, Any] | None = None,
        at: float | None = None,
    ) -> RunId:
        """A run with that log. `task`: parked if nothing is said; `lie`: what its document says instead."""
        run = RunId(run_id)
        begun = self.clock.now() if at is None else at
        events: list[e.Event] = []
        branch = e.Event(1, 0.0, bodies[0]).branch
        for place, body in enumerate(bodies, 1):
            branch = body.branch if isinstance(body, e.BranchCreated) else branch
            events.append(e.Event(place, begun, body, branch, nonce=f"{run_id}-{place}" if place == 1 else None))
        told: Document = document(fold(run, events))
        told = msgspec.structs.replace(told, **(lie or {}))
        change = Released(due_at=None, now=0.0) if task is None else task
        (outcome,) = await self.store.commit([Write(run, 0, tuple(events), told, change)])
        assert outcome == Committed(len(events))
        return run

    async def left_by(self, runner: RunnerId, run_id: str, *bodies: e.Body, **more: Any) -> RunId:
        return await self.plant(run_id, *bodies, task=Held(runner), **more)

    async def log(self, run_id: str) -> list[e.Event]:
        return await read_log(self.store, RunId(run_id))

    async def types(self, run_id: str, after: int = 0) -> list[str]:
        return [event.type for event in (await self.log(run_id))[after:]]

    async def state(self, run_id: str) -> State:
        return fold(RunId(run_id), await self.log(run_id))

    async def record(self, run_id: str) -> RunRecord:
        found = await self.store.run(RunId(run_id))
        assert found is not None
        return found

    async def due(self) -> list[str]:
        """The runs that a worker could take now."""
        runner = await self.runner("looker")
        return sorted(task.run_id for task in await self.store.claim_tasks(runner, ANY, 200))


def created(policy: str = "resume", **more: Any) -> e.WorkflowCreated:
    return msgspec.structs.replace(
        e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}"), policy=policy), **more
    )  # fmt: skip


@asynccontextmanager
async def opened(place: Path, kind: str = "sqlite") -> AsyncIterator[RecoveryHarness]:
    clock = ManualClock()
    if kind == "objects":
        yield RecoveryHarness(await ObjectStore.on(MemoryBucket(), clock=clock, single_host=True), clock, Deaths())
        return
    url = f"sqlite:///{place}/runs.db" if kind == "sqlite" else f"file://{place}/folder"
    store = await open_store(url, clock)
    try:
        yield RecoveryHarness(store, clock, Deaths())
    finally:
        await store.close()


def play(place: Path, test: Callable[[RecoveryHarness], Awaitable[None]], kind: str = "sqlite") -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), opened(place, kind) as harness:
            await test(harness)

    asyncio.run(main())


def no_twice(log: Sequence[e.Event]) -> bool:
    """Whether no branch number was given twice."""
    made = [event.body.branch for event in log if isinstance(event.body, e.BranchCreated)]
    return len(made) == len(set(made))
