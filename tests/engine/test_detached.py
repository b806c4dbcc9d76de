"""Code that is dropped (evicted, stopped, fenced) does nothing more, whatever stands in its `finally` parts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.run.execution import Execution
from buoy.ports.records import Committed, Outcome, Write
from tests.patience import PATIENCE_S

from .harness import ReplayHost, opened, result_of, types_of, until, until_status
from .scripted_steps import WITNESS, threaded


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()
    EFFECTS.clear()


EFFECTS: list[str] = []


@buoy.step
async def effect(name: str) -> str:
    """Says that it ran at its very first line: a plain call outside of the engine would be seen too."""
    EFFECTS.append(name)
    return name


@buoy.step
def effect_in_thread(name: str) -> str:
    EFFECTS.append(name)
    return name


Body = Callable[[], Coroutine[Any, Any, Any]]
SHAPES: dict[str, Body] = {}


def shape(fn: Body) -> Body:
    SHAPES[fn.__name__] = fn
    return fn


@shape
async def plain_finally() -> Any:
    try:
        return await buoy.wait_signal("go")
    finally:
        await effect("clean")


@shape
async def sync_step_in_finally() -> Any:
    try:
        return await buoy.wait_signal("go")
    finally:
        await effect_in_thread.call("clean")


@shape
async def several_steps_in_finally() -> Any:
    try:
        try:
            return await buoy.wait_signal("go")
        finally:
            await asyncio.gather(effect("one"), effect("two"))
    finally:
        await effect("clean")


@shape
async def code_that_catches_everything() -> Any:
    try:
        return await buoy.wait_signal("go")
    except BaseException:
        await effect("caught")
        raise
    finally:
        await effect("clean")


@shape
async def finally_around_a_task_group() -> Any:
    async def leg() -> Any:
        try:
            return await buoy.wait_signal("leg")
        finally:
            await effect("leg")

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(leg())
            found = await buoy.wait_signal("go")
            task.cancel()
        return found
    finally:
        await effect("clean")


@shape
async def finally_around_a_lock_and_a_time_limit() -> Any:
    lock = asyncio.Lock()
    try:
        async with asyncio.timeout(PATIENCE_S), lock:
            return await buoy.wait_signal("go")
    finally:
        await effect("clean")


@shape
async def context_managers_with_steps() -> Any:
    @asynccontextmanager
    async def room() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await effect("leave")

    async with room(), room():
        return await buoy.wait_signal("go")


@shape
async def generators_with_steps() -> Any:
    async def values() -> AsyncIterator[Any]:
        try:
            yield await buoy.wait_signal("go")
        finally:
            await effect("close")

    found = None
    async for value in values():
        found = value
    return found


@shape
async def tasks_in_the_background() -> Any:
    async def leg() -> None:
        try:
            await buoy.wait_signal("never")
        finally:
            await effect("leg")

    tasks = [asyncio.create_task(leg()) for _ in range(3)]
    found = await buoy.wait_signal("go")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


@pytest.mark.parametrize("how", ["evicted", "stopped"])
@pytest.mark.parametrize("name", SHAPES)
async def test_the_finally_of_dropped_code_has_no_effect(name: str, how: str, url: str) -> None:
    dropped = buoy.workflow(name="dropped")(SHAPES[name])
    small = buoy.RunnerOptions(waiting_runs_max=0, stop_grace_s=2)
    async with opened(url, dropped, options=small if how == "evicted" else buoy.RunnerOptions()) as app:
        await app.start_as("run", dropped)
        await until_status(app, "run", "waiting_signal")
        if how == "evicted":
            await until(lambda: app.runner.holding() == 0, "the run to leave memory")
            gc.collect()
            await asyncio.sleep(0)
            assert EFFECTS == []
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()
    assert EFFECTS == []
    async with buoy.connect(url) as client:
        assert (await types_of(client, "run")).count("step_started") == 0
    async with opened(url, dropped) as app:
        run = await app.get("run")
        await run.signal("go", "on")
        assert await result_of(app, run) == "on"
    once = sorted(EFFECTS)
    gc.collect()
    assert sorted(EFFECTS) == once
    assert EFFECTS


async def test_a_run_dropped_by_a_fence_has_no_effect_either(url: str) -> None:
    @buoy.workflow
    async def dropped() -> Any:
        try:
            return await buoy.wait_signal("go")
        finally:
            await effect("clean")
            await threaded.call("clean")

    async with opened(url, dropped) as app:
        await app.start_as("run", dropped)
        await until_status(app, "run", "waiting_signal")
        app.runner.declared_gone("a test says so")
        await until(lambda: app.runner.holding() == 0)
        gc.collect()
        await asyncio.sleep(0)
        assert await types_of(app, "run") == ["workflow_created", "claimed", "signal_waited"]
    assert EFFECTS == []
    assert WITNESS.ran == []


async def test_a_commit_that_comes_back_after_the_run_was_dropped_starts_nothing() -> None:
    @buoy.workflow
    async def waits() -> None:
        await buoy.wait_signal("go")

    class Slow(ReplayHost):
        """A host whose store answers a commit when the test lets it."""

        def submit(self, write: Write, done: Callable[[Outcome], None]) -> None:
            super().submit(write, done)
            self.answer = done

    host, begun = Slow(), list[str]()
    execution = Execution(host, waits, RunId("run"))  # type: ignore[arg-type]
    execution.after_commit(lambda: begun.append("a body"))
    execution.create(e.WorkflowCreated(workflow="waits", input=msgspec.Raw(b"{}")))
    (write,) = host.writes
    execution.detach()
    host.answer(Committed(write.events[-1].seq))
    assert begun == []
