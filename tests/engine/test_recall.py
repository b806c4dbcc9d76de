"""A replay gives outcomes as soon as they are asked for, where it can. The code must not be able to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e

from .harness import cuts, log_of, opened, replayed, result_of, until_status, without_end
from .scripted_steps import WITNESS, after, fails, work

TRACE: list[str] = []


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()
    TRACE.clear()


@buoy.step
async def undo(name: str, value: int, done: int) -> None: ...


@buoy.step(compensate=undo)
async def undoable(name: str, value: int) -> int:
    return await work.fn(name, value)


async def cancelled_by_itself() -> Any:
    """A task that is to be cancelled at its next wait does not see an outcome, though the log has it next."""
    await work("a", 1)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await undoable("b", 2)
    except asyncio.CancelledError:
        TRACE.append("given up")
        task.uncancel()
    return [await after("c", "b", 3)]


async def somebody_else_can_move() -> Any:
    """What was made ready before a call runs before its outcome comes."""

    async def aside() -> None:
        TRACE.append("aside")
        await work("aside")

    other = asyncio.create_task(aside())
    found = await work("a", 1)
    TRACE.append("a")
    await other
    asyncio.get_running_loop().call_soon(TRACE.append, "soon")
    found += await work("b", 2)
    TRACE.append("b")
    return found


async def time_goes_by() -> Any:
    began = buoy.now()
    await work("a")
    first = buoy.now()
    await work("b")
    return [began <= first <= buoy.now(), (first - began).total_seconds()]


async def a_step_that_failed() -> Any:
    try:
        await fails("a")
    except buoy.StepFailed as error:
        return [str(error), await work("b", 2)]


FORMS: list[Callable[[], Any]] = [cancelled_by_itself, somebody_else_can_move, time_goes_by, a_step_that_failed]


@pytest.mark.parametrize("code", FORMS)
async def test_code_sees_the_same_when_it_is_replayed(code: Callable[[], Any], url: str) -> None:
    workflow = buoy.workflow(code)
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("original", workflow))
        log = await log_of(app, "original")
    seen = list(TRACE)
    for piece in cuts(log):
        appended = await replayed(workflow, piece)
        assert [type(body) for body in appended] == [e.Claimed], f"cut after event {len(piece)}: {appended}"
    TRACE.clear()
    last = await replayed(workflow, without_end(log))
    assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted]
    assert last[-1].result == log[-1].body.result
    assert seen == TRACE


async def test_a_stored_result_that_no_longer_fits_cannot_be_caught_by_the_code(url: str) -> None:
    answers: list[type] = [int]

    async def code() -> Any:
        async def answer() -> Any:
            return 1

        answer.__annotations__["return"] = answers[-1]
        try:
            await buoy.step(answer)()
        except Exception:
            return "hidden"
        return await buoy.wait_signal("go")

    workflow = buoy.workflow(name="code")(code)
    async with opened(url, workflow) as app:
        await app.start_as("run", workflow)
        await until_status(app, "run", "waiting_signal")
    answers.append(list)
    async with opened(url, workflow) as app:
        await app.signal("run", "go")
        assert "answer#1" in (await until_status(app, "run", "paused")).pause.detail
