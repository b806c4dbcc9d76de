"""Time in workflow code advances while no process drives the run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.log import events as e
from buoy.core.log.timeline import DELIVERED
from buoy.engine.code.replay import OUTCOMES
from buoy.host.clock import SystemClock

from .harness import bodies_of, log_of, opened, plant, result_of, store_at, until, until_event, until_status

HOUR_S = 3600.0
LATE_S = 0.6
SHORT_S = 0.3


@buoy.step
async def quick() -> str:
    return "done"


@buoy.workflow
async def in_time() -> str:
    async with asyncio.timeout(HOUR_S / 2):
        return await quick()


@buoy.workflow
async def naps() -> float:
    began = buoy.now()
    await asyncio.sleep(SHORT_S)
    return (buoy.now() - began).total_seconds()


@buoy.workflow
def naps_in_a_thread() -> float:
    began = buoy.now()
    buoy.sleep(SHORT_S)
    return (buoy.now() - began).total_seconds()


async def late(url: str, workflow: Any) -> Any:
    """The result of a run that waited for a worker longer than its own times last: for an hour."""
    began = SystemClock().now() - HOUR_S
    created = e.Event(1, began, e.WorkflowCreated(workflow=workflow.name, input=msgspec.Raw(b"{}")))
    async with store_at(url) as store:
        await plant(store, "run", [created], cause="created")
    async with opened(url, workflow) as app:
        return await result_of(app, await app.get("run"))


def test_the_core_and_the_engine_mean_the_same_by_what_is_delivered() -> None:
    assert {*OUTCOMES, e.CancelRequested} == DELIVERED - {e.JobHeld}  # no code waits for a job, only a plan does


async def test_a_timeout_begins_when_the_code_does(url: str) -> None:
    assert await late(url, in_time) == "done"


@pytest.mark.parametrize("workflow", [naps, naps_in_a_thread])
async def test_a_run_that_waited_for_a_worker_sleeps_as_long_as_it_says(url: str, workflow: Any) -> None:
    slept_s = await late(url, workflow)
    assert slept_s >= SHORT_S
    async with opened(url) as app:
        took = next(event.at for event in await log_of(app, "run") if isinstance(event.body, e.Claimed))
        (timer,) = await bodies_of(app, "run", e.TimerStarted)
        assert timer.due_at >= took + SHORT_S


async def test_what_came_during_a_pause_is_seen_when_it_ends(url: str) -> None:
    """And a replay of it finds the same."""
    go_on = asyncio.Event()

    @buoy.step
    async def slow() -> str:
        await go_on.wait()
        return "done"

    @buoy.workflow
    async def naps_after_a_step() -> list[str]:
        await slow()
        woken = buoy.now()
        await asyncio.sleep(SHORT_S)
        await buoy.wait_signal("end")
        return [woken.isoformat(), await told(woken.isoformat())]

    @buoy.step
    async def told(text: str) -> str:
        return text

    async with opened(url, naps_after_a_step) as app:
        run = await app.start_as("run", naps_after_a_step)
        await until_event(app, "run", "step_started")
        await run.pause()
        await until_status(app, "run", "paused")
        go_on.set()
        await until_event(app, "run", "step_completed")
        paused_until = app.clock.now() + LATE_S
        await until(lambda: app.clock.now() > paused_until)
        await run.resume()
        await until_event(app, "run", "signal_waited")
        log = await log_of(app, "run")
        resumed_at = next(event.at for event in log if isinstance(event.body, e.Resumed))
        (timer,) = await bodies_of(app, "run", e.TimerStarted)
        assert timer.due_at >= resumed_at + SHORT_S
    async with opened(url, naps_after_a_step) as app:
        run = await app.get("run")
        await run.signal("end")
        woken, said = await result_of(app, run)
        assert woken == said
        assert (await run.document()).status == "completed"
