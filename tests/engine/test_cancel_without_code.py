"""Runs that are paused because their code does not fit: cancelled at once, unless steps have to be undone first."""

from __future__ import annotations

from typing import Any

import pytest

import buoy
from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.operations.inspect.explanation import explain_run
from buoy.recovery.sweep.sweep import sweep
from tests.patience import until

from .harness import opened, outcome_of, types_of, until_event

UNDONE: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    UNDONE.clear()


@buoy.step
async def book() -> str:
    return "booked"


@buoy.step
async def unreserve() -> None:
    UNDONE.append("reserve")


@buoy.step(compensate=unreserve)
async def reserve() -> str:
    return "reserved"


@buoy.step
async def other() -> str:
    return "other"


@buoy.workflow(name="trip")
async def booked() -> str:
    found = await book()
    await buoy.wait_signal("go")
    return found


@buoy.workflow(name="trip")
async def reserved() -> str:
    found = await reserve()
    await buoy.wait_signal("go")
    return found


@buoy.workflow(name="trip")
async def changed() -> str:
    found = await other()
    await buoy.wait_signal("go")
    return found


async def begun(url: str, workflow: buoy.Workflow[..., Any]) -> None:
    """A run that waits, and whose first step completed."""
    async with opened(url, workflow) as app:
        await app.start_as("run", workflow)
        await until_event(app, "run", "signal_waited")


async def held_for_code(app: buoy.Client) -> None:
    """Has the worker of this process try its code on the run."""
    await app.pause("run")
    await app.resume("run")
    await until_event(app, "run", "paused", count=2)
    await released(app)


async def released(app: buoy.Client) -> None:
    async def free() -> bool:
        return (await app.record("run")).holder is None

    await until(free, "the worker to let go of the run")


async def test_a_run_that_is_paused_for_its_code_is_cancelled_though_a_worker_with_other_code_lives(url: str) -> None:
    await begun(url, booked)
    async with opened(url, changed) as app:
        await held_for_code(app)
        assert (await app.cancel("run")).done
        assert await outcome_of(app, await app.get("run")) == ("cancelled", None)


async def test_a_cancellation_that_needs_code_waits_for_it_and_says_so(url: str) -> None:
    """The code undoes what completed: without it nothing may be left half done."""
    await begun(url, reserved)
    async with opened(url, changed) as app:
        await held_for_code(app)
        asked = await app.cancel("run")
        assert not asked.done
        assert "no live worker has code that fits it; it is cancelled as soon as one has" in asked.text
        await until_event(app, "run", "paused", count=3)
        await released(app)
        told = await explain_run(app, RunId("run"), Wording())
        assert told.health == "idle"
        assert told.headline.startswith("run is paused: the code of the workflow has changed")
        assert any("A request to cancel it" in line and "needs code that fits" in line for line in told.next)
        after = await types_of(app, "run")
        assert (await sweep(app)).resumed == 0
        assert await types_of(app, "run") == after, "a sweep does not wake it for the same pause again"
    async with opened(url, reserved) as app:
        assert await outcome_of(app, await app.get("run")) == ("cancelled", None)
    assert UNDONE == ["reserve"]


async def test_a_worker_that_serves_another_queue_is_not_said_to_take_the_run(url: str) -> None:
    """A worker that is stopping serves no queue at all."""
    await begun(url, reserved)
    async with buoy.open(url, workflows=[reserved], queues=("elsewhere",)) as app:
        assert "no live worker that knows workflow 'trip' serves queue 'default'" in (await app.cancel("run")).text
