"""A run that its worker gave back because the store did not answer: until it is taken again, the worker is not idle."""

from __future__ import annotations

from pathlib import Path

import pytest

import buoy
from buoy.engine.authoring.definitions import Registry
from buoy.operations.workers.worker import WorkerOrder, runs_left_when_idle
from buoy.wiring.local_worker import host_worker
from tests.patience import until

from .faults import FaultyStore
from .harness import QUICK_STOP, store_at


@buoy.workflow
async def quick() -> int:
    return 1


async def test_a_worker_is_not_idle_while_a_run_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.engine.process.intake.POLL_S", 600.0)
    registry = Registry()
    registry.add(quick)
    order = WorkerOrder(
        registry=registry, queues=("default",), concurrency=10, until_idle=True, sweeps=False, grace_s=1.0
    )
    async with store_at(f"sqlite:///{tmp_path}/store.db") as below:
        store = FaultyStore(below)
        worker = host_worker(store, registry, role="worker", queues=("default",), options=QUICK_STOP)  # type: ignore[arg-type]
        client = worker.client()
        await client.start_as("r", quick)
        store.fail("events", "before")
        await worker.start(sweeps=False)
        try:

            async def given_back() -> bool:
                return store.left == 0 and (await client.record("r")).holder is None

            await until(given_back)
            assert await runs_left_when_idle(worker.runner, worker.sweeper, worker.liveness, order) is None
        finally:
            await worker.stop()
