"""Upkeep: what operators do for a store as a whole: schedules, migrations, and runs that another system wrote."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.operations.control.schedules import Times, add_schedule, remove_schedule
from buoy.ports.maintenance import RunCopy, TaskFound
from buoy.recovery.sweep.resume_paused import migrate_all
from simulator.plan import RunPlan, TimePlan
from simulator.process import Process
from simulator.programs import RENAMED_STEPS
from simulator.sender import patiently
from simulator.workflows import RENAMED, Release

_PATIENCE_S = 6.0
# Events that the other system says that its run has.
_FOREIGN_EVENTS = 7


async def add_time(process: Process, client: Client, release: Release, time: TimePlan) -> None:
    """Adds a schedule. From then on workers start runs by it."""
    workflow = release.run_async if time.is_async else release.run_sync
    stored = workflow.arguments.encode((time.program,), {})
    times = Times(every_s=float(time.every_s), catch_up=time.catch_up)
    with process.speaking():
        made = await patiently(
            process, f"add {time.name}", lambda: add_schedule(client, time.name, workflow, stored, times)
        )
    if made is not None:
        process.tell(f"{time.name} fires every {time.every_s} s, and catches up on {time.catch_up}")
        process.world.schedules[time.name] = made


async def remove_times(process: Process, client: Client) -> None:
    """No schedule fires any more, also none that was added without an answer."""
    with process.speaking():
        for name in [each.name for each in process.world.plan.schedules]:
            await patiently(process, f"remove {name}", lambda name=name: remove_schedule(client, name))  # type: ignore[misc]


async def keep_migrating(process: Process, client: Client) -> None:
    """Looks again and again for runs that wait for code with the old names, and says that they are new."""
    world = process.world
    while True:
        await asyncio.sleep(process.rng.random() * _PATIENCE_S)
        if not world.faults.on:
            return
        for workflow in ("sim_async", "sim_sync"):
            with process.speaking():
                done = await patiently(
                    process,
                    f"migrate {workflow}",
                    lambda workflow=workflow: migrate_all(  # type: ignore[misc]
                        client, workflow, RENAMED_STEPS, version=f"release-{RENAMED}"
                    ),
                )
            for each in () if done is None else done.migrated:
                process.tell(
                    f"{each.run_id}: migrated from {each.previous}: {len(each.leaves)} leaves have other names"
                )
                world.count_act("migrate")


async def bring_foreign(process: Process, client: Client, release: Release, run: RunPlan) -> None:
    """Another system writes the document of a run of its own, and nothing else."""
    workflow = release.run_adopted
    created = e.WorkflowCreated(
        workflow=workflow.name, input=workflow.arguments.encode((), {}), version=workflow.version, stack=run.stack,
        env=run.env,
    )  # fmt: skip
    run_id = RunId(run.name)
    born = document(fold(run_id, [e.Event(1, client.clock.now(), created)]))
    told = replace(born, status=Status.RUNNING, head_seq=_FOREIGN_EVENTS)
    copy = RunCopy(id=run.name, document=told, events=(), found=TaskFound("missing"))
    with process.speaking():
        done = await patiently(process, f"bring {run.name}", lambda: client.store.archive.import_run(copy))
    if done is not None:
        process.tell(f"{run.name}: another system wrote it")
        process.world.foreign[run.name] = told
