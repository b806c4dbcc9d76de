"""A store that answers no write and gives no error: a worker that stops does not wait for it forever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import buoy
from buoy.engine.authoring.definitions import Registry
from buoy.wiring.local_worker import host_worker
from tests.patience import PATIENCE_S, until

from .faults import FaultyStore
from .harness import QUICK_STOP, store_at


@buoy.workflow
async def patient() -> str:
    return str(await buoy.wait_signal("go"))


@pytest.mark.parametrize(("silent", "unproven"), [("register", 1), ("release", 0), ("declare_dead", 1)])
async def test_a_stop_ends_although_the_store_does_not_answer(
    silent: str, unproven: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buoy.core.limits.STOP_ANSWER_S", 0.1)
    registry = Registry()
    registry.add(patient)
    async with store_at(f"sqlite:///{tmp_path}/store.db") as below:
        store = FaultyStore(below)
        worker = host_worker(store, registry, role="worker", queues=("default",), options=QUICK_STOP)  # type: ignore[arg-type]
        await worker.start(sweeps=False)
        await worker.client().start_as("r", patient)
        await until(lambda: "r" in worker.runner.executions, "the run to be driven")
        run = worker.runner.executions["r"]  # type: ignore[index]
        await until(lambda: run.ledger.idle and run.state.status == "waiting_signal", "the run to wait")
        gate = store.hold(silent)
        try:
            async with asyncio.timeout(PATIENCE_S):
                left = await worker.stop()
        finally:
            gate.set()
        assert left == unproven, "without a last answer its end is to be proven, as after a kill"
        said = worker.runner.trouble_log.last_error
        assert not unproven or "the store gave no answer for 0.1 s" in str(said)
