"""Which step, or which child, ended a run: recorded as a fact, whatever the error's text says."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e
from buoy.core.log.state import State


@buoy.step
async def data(name: str) -> str:
    raise ValueError(f"no {name}")


@buoy.step
async def a(name: str) -> str:
    raise ValueError(f"no {name} either")


@buoy.workflow
async def failed_before_it() -> None:
    """`a#1` fails last, is caught, and occurs in the text about `data#1`."""
    try:
        await data("salt")
    except buoy.StepFailed as first:
        with contextlib.suppress(buoy.StepFailed):
            await a("salt")
        raise first


@buoy.workflow
async def raised_from() -> None:
    try:
        await data("salt")
    except buoy.StepFailed as error:
        raise RuntimeError("cannot cook") from error


@buoy.workflow
async def raised_while_handling() -> None:
    try:
        await data("salt")
    except buoy.StepFailed:
        raise RuntimeError("cannot cook")


@buoy.workflow
async def raised_from_none() -> None:
    try:
        await data("salt")
    except buoy.StepFailed:
        raise RuntimeError("cannot cook") from None


@buoy.workflow
async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(data("salt"))


@buoy.workflow
async def caught_and_told() -> None:
    """The code fails by itself; its text has the id of a step that was caught."""
    with contextlib.suppress(buoy.StepFailed):
        await data("salt")
    raise LookupError("data#1 failed: so they say")


@buoy.workflow
def in_sync_code() -> None:
    try:
        data.call("salt").result()
    except buoy.StepFailed as error:
        raise RuntimeError("cannot cook") from error


@buoy.workflow
async def by_its_child() -> None:
    await raised_from()


async def _failed(workflow: Any, place: Path) -> tuple[e.WorkflowFailed, State, tuple[str, ...]]:
    async with buoy.open(f"sqlite:///{place / 'x.db'}", workflows=[workflow, raised_from]) as app:
        run = await app.start_as("r", workflow)
        with pytest.raises(buoy.RunFailed):
            await run.result()
        end = (await app.store.events("r"))[-1].body
        assert isinstance(end, e.WorkflowFailed)
        return end, await app.state("r"), tuple(map(str, (await app.plan_retry("r")).again))


@pytest.mark.parametrize(
    "workflow",
    [failed_before_it, raised_from, raised_while_handling, in_a_group, in_sync_code],
    ids=lambda each: each.name,
)
async def test_the_step_whose_failure_ended_a_run_is_recorded_and_runs_again(workflow: Any, tmp_path: Path) -> None:
    end, state, again = await _failed(workflow, tmp_path)
    leaf = state.cause_leaf
    assert leaf is not None and state.leaves[leaf].name == "data"
    assert (end.cause_leaf, end.cause_child) == (leaf, None)
    assert leaf in again


@pytest.mark.parametrize("workflow", [raised_from_none, caught_and_told], ids=lambda each: each.name)
async def test_code_that_fails_by_itself_has_no_step_as_its_cause(workflow: Any, tmp_path: Path) -> None:
    end, _, again = await _failed(workflow, tmp_path)
    assert (end.cause_leaf, end.cause_child) == (None, None)
    assert again == ()


async def test_a_child_whose_failure_ended_its_parent_is_recorded(tmp_path: Path) -> None:
    end, state, again = await _failed(by_its_child, tmp_path)
    (leaf,) = state.leaves.values()
    assert leaf.child is not None
    assert (end.cause_leaf, end.cause_child) == (None, leaf.child.child)
    assert again == (leaf.id,)


@buoy.workflow
async def starts_a_second_loop() -> None:
    asyncio.run(asyncio.sleep(0))


async def test_code_that_starts_a_second_loop_is_told_what_to_do_instead(tmp_path: Path) -> None:
    """Known by where the error was raised: Python may reword its text."""
    end, _, _ = await _failed(starts_a_second_loop, tmp_path)
    assert end.error.type == "RuntimeError"
    assert end.error.message.endswith("await the coroutine, or put what does I/O in a step")
