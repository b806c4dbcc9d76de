"""A store that loses every tenth answer: a workload of all that appends and sends ends right, nothing is doubled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.state import State, fold
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.errors import WrongState
from buoy.operations.control.schedules import Times, add_schedule
from buoy.wiring.local_worker import host_worker
from buoy.wiring.worker import Worker
from tests.lossy import LossyStore, lossy, surely
from tests.patience import until

from .harness import QUICK_STOP, log_of, store_at
from .scripted_steps import work

ORDERS = 6
BROKEN: set[int] = set()


@buoy.step
async def charge(n: int) -> int:
    if n in BROKEN:
        raise ValueError("not yet")
    return n


@buoy.workflow
async def order(n: int) -> int:
    await work("first")
    got: int = await buoy.wait_signal("go")
    return got + await charge(n)


@buoy.workflow
async def family(n: int) -> int:
    return await charge_child(n) + await charge_child(n + 1)


@buoy.workflow
async def charge_child(n: int) -> int:
    return await charge(n)


class Workload:
    """What is done through the lossy store; a client of the store below sees what has become of it."""

    def __init__(self, app: Client, seen: Client, worker: Worker) -> None:
        self.app = app
        self.seen = seen
        self.worker = worker

    async def run(self) -> dict[str, int]:
        """The results that must be there, by run."""
        schedule = ("every", order, msgspec.Raw(b'{"n": 100}'), Times(every_s=3600))
        await surely(lambda _: add_schedule(self.app, *schedule))
        orders = {(await self._start(order, n)): n for n in range(ORDERS)}
        families = {(await self._start(family, n)): 2 * n + 1 for n in (20, 30)}
        for run_id, n in orders.items():
            await self._until(run_id, "waiting_signal")
            if n % 3 == 0:
                await self._jump(run_id)
            elif n % 3 == 1:
                await self._migrate(run_id)
            await self._sweep()
            await self._signal(run_id, n)
        for run_id, n in orders.items():
            if n in BROKEN:
                await self._until(run_id, "failed")
                BROKEN.discard(n)
                await self._retry(run_id)
        await self._sweep()
        return {run_id: 2 * n for run_id, n in orders.items()} | families

    async def _start(self, workflow: Any, n: int) -> str:
        started = await surely(lambda key: self.app.start_as(key or f"{workflow.name}-{n}", workflow, n))
        return started.id

    async def _jump(self, run_id: str) -> None:
        await surely(lambda key: self.app.jump(run_id, "work", dedupe=key))

    async def _retry(self, run_id: str) -> None:
        await surely(lambda key: self.app.retry(run_id, dedupe=key))

    async def _signal(self, run_id: str, n: int) -> None:
        await surely(lambda key: self.app.signal(run_id, "go", n, dedupe=key))

    async def _migrate(self, run_id: str) -> None:
        """A run is migrated while no worker drives it."""

        async def pause(_: str | None) -> None:
            try:
                await self.app.pause(run_id)
            except WrongState:
                assert (await self.seen.record(run_id)).document.pause is not None

        async def migrated() -> bool:
            try:
                await surely(lambda key: self.app.migrate(run_id, {}, version=version, dedupe=key))
            except WrongState:
                return False  # a worker took the paused run once more, and lets go of it again
            return True

        await surely(pause)
        await until(lambda: self._let_go(run_id), f"{run_id} to be let go")
        version = (await self.seen.record(run_id)).document.version
        await until(migrated, f"{run_id} to be migrated")

        async def resume(_: str | None) -> None:
            try:
                await self.app.resume(run_id)
            except WrongState:
                assert (await self.seen.record(run_id)).document.pause is None

        await surely(resume)

    async def _let_go(self, run_id: str) -> bool:
        record = await self.seen.record(run_id)
        return record.document.pause is not None and record.holder is None

    async def _sweep(self) -> None:
        async def sweep(_: str | None) -> None:
            await self.worker.sweeper.whole()
            await self.worker.scheduler.look()

        await surely(sweep)

    async def _until(self, run_id: str, status: str) -> None:
        async def is_so() -> bool:
            return (await self.seen.record(run_id)).document.status == status

        await until(is_so, f"{run_id} to be {status}")


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_workload_on_a_store_that_loses_answers_ends_right(seed: int, any_url: str) -> None:
    BROKEN.update({2, 5})
    registry = Registry()
    for workflow in (order, family, charge_child):
        registry.add(workflow)
    async with store_at(any_url) as below:
        store = lossy(below, seed)
        worker = host_worker(store, registry, role="worker", queues=("default",), options=QUICK_STOP)
        seen = worker.client()
        seen.store = below
        await start(worker)
        try:
            expected = await Workload(worker.client(), seen, worker).run()
            for run_id in expected:
                await until(lambda run=run_id: ended(seen, run), f"{run_id} to end")  # type: ignore[misc]
            assert {run_id: await (await seen.get(run_id)).result() for run_id in expected} == expected
            await check(seen, expected)
        finally:
            await stop(worker, store)
    # Which calls lose theirs depends on the threads of the machine.
    assert store.lost["commit"] and store.lost.total() > 10


async def start(worker: Worker) -> None:
    """A process whose start fails starts again."""
    await surely(lambda _: worker.runner.store.register(worker.info))
    worker.store.rate = 0.0  # type: ignore[attr-defined]
    await worker.start()
    worker.store.rate = 0.1  # type: ignore[attr-defined]


async def stop(worker: Worker, store: LossyStore) -> None:
    store.rate = 0.0
    await worker.stop()


async def ended(app: Client, run_id: str) -> bool:
    return (await app.record(run_id)).document.ended


async def check(app: Client, expected: dict[str, int]) -> None:
    """Every effect is there once, and each log is sound."""
    runs = [each.document.run_id for each in (await app.runs(limit=1000)).runs]
    families = [run_id for run_id in expected if run_id.startswith("family")]
    assert len(runs) == len(set(runs)) == len(expected) + 2 * len(families)
    for run_id in runs:
        log = await log_of(app, run_id)
        state = fold(RunId(run_id), log)
        assert state.anomalies == [], (run_id, state.anomalies)
        counts = {kind: sum(isinstance(each.body, kind) for each in log) for kind in (e.BranchCreated, e.VersionBound)}
        assert counts == wanted(run_id, state), (run_id, [event.type for event in log])
        inbox = await app.store.inbox(RunId(run_id))
        assert sum(message.kind == "signal" for message in inbox) == run_id.startswith("order")


def wanted(run_id: str, state: State) -> dict[type[e.Payload], int]:
    """One branch for a jump or a retry, which raises epochs by one, and one binding for a migration."""
    branches = int(run_id in ("order-0", "order-3", "order-2", "order-5"))
    assert set(state.epochs.values()) <= ({1} if branches else set())
    return {e.BranchCreated: branches, e.VersionBound: int(run_id in ("order-1", "order-4"))}
