"""A worker names the runs whose code waits for nothing, with its heartbeat."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec

import buoy
from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.ids import RunId
from buoy.engine.authoring.definitions import Registry
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet
from buoy.wiring.local_worker import open_worker
from tests.patience import until

GO = threading.Event()


@buoy.workflow
async def waits_at_once() -> None:
    await asyncio.Event().wait()


@buoy.workflow
def computes() -> str:
    GO.wait(60)
    return "done"


@buoy.step
async def long() -> None:
    await asyncio.Event().wait()


@buoy.workflow
async def works() -> None:
    await long()


async def test_a_workflow_that_waits_for_nothing_as_its_first_act_is_found(tmp_path: Path) -> None:
    registry = Registry()
    workflows = (waits_at_once, computes, works)
    for workflow in workflows:
        registry.add(workflow)
    async with open_worker(f"sqlite:///{tmp_path}/store.db", registry) as worker:
        await worker.start(sweeps=False)
        client = worker.client()
        for workflow in workflows:
            await client.start_as(workflow.name, workflow)  # type: ignore[arg-type]
        driven = worker.runner.executions
        await until(lambda: len(driven) == 3 and driven[RunId("waits_at_once")].stuck)
        await until(lambda: bool(driven[RunId("works")].state.open))
        await worker.beats.last(worker.store)
        fleet = await read_fleet(worker.store, worker.liveness)
        found = {}
        for workflow in workflows:
            facts, _ = await facts_of_run(worker.store, fleet, await client.record(workflow.name))
            later = diagnose(msgspec.structs.replace(facts, now=facts.now + 60.0))
            found[workflow.name] = [each.code for each in later if each.trouble]
        assert found == {"waits_at_once": ["W1"], "computes": [], "works": []}
        GO.set()
        await worker.stop(grace_s=0.0)
