"""A forgotten `await`: Python warns of a durable call that nothing awaits, and errors say what to write instead."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import buoy

from .harness import opened, result_of, until_status
from .scripted_steps import work


@buoy.workflow
async def other() -> str:
    return "done"


FORGOTTEN: dict[str, tuple[Callable[[], Any], str]] = {
    "step": (lambda: work("a"), "the call of step work"),
    "sleep": (lambda: buoy.sleep("2d"), "timer#1"),
    "signal": (lambda: buoy.wait_signal("packed"), "signal:packed#1"),
    "question": (lambda: buoy.ask("Ship?"), "ask#1"),
    "child": (lambda: other(), "other#1"),
    "independent run": (lambda: buoy.start_child(other), "other#1"),
}


@pytest.mark.parametrize("name", FORGOTTEN)
async def test_a_durable_call_that_nothing_awaits_is_warned_of(name: str, url: str) -> None:
    make, what = FORGOTTEN[name]

    @buoy.workflow
    async def forgets() -> str:
        make()
        return "done"

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with opened(url, forgets, other) as app:
            assert await result_of(app, await app.start(forgets)) == "done"
        gc.collect()
    said = [str(each.message) for each in seen if "never awaited" in str(each.message)]
    assert said == [f"{what} was never awaited, so it did not happen; write `await` before it"]


async def test_a_call_that_a_cancellation_drops_before_it_begins_is_not_warned_of(url: str) -> None:
    @buoy.workflow
    async def drops() -> str:
        task = asyncio.create_task(buoy.sleep("2d"))
        task.cancel()
        call = buoy.sleep("3d")
        call.close()
        return "done"

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with opened(url, drops) as app:
            assert await result_of(app, await app.start(drops)) == "done"
        gc.collect()
    assert not [each for each in seen if "never awaited" in str(each.message)]


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_a_call_that_a_stop_cuts_off_before_its_await_is_not_warned_of(kind: str, url: str) -> None:
    @buoy.workflow
    async def asks() -> str:
        later, step = buoy.sleep("2d"), work("late")
        await buoy.ask("Ship?")
        await later
        return str(await step)

    @buoy.workflow
    def asks_too() -> str:
        step = work.call("late")
        buoy.ask("Ship?")
        return str(step.result())

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with opened(url, asks, asks_too) as app:
            await app.start_as("cut", asks if kind == "async" else asks_too)
            await until_status(app, "cut", "awaiting_input")
        gc.collect()
    assert not [each for each in seen if "never awaited" in str(each.message)]


async def test_a_def_workflow_that_returns_a_call_is_told_of_result_and_not_of_await(url: str) -> None:
    @buoy.workflow
    def returns() -> Any:
        return work.call("a")

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with opened(url, returns) as app:
            run = await app.start(returns)
            with pytest.raises(buoy.RunFailed) as failed:
                await run.result()
        gc.collect()
    for text in (str(failed.value), *(str(each.message) for each in seen if "never awaited" in str(each.message))):
        assert "ask for its `.result()`, or hand it to `buoy.gather`" in text and "write `await`" not in text
