"""Children that going back leaves behind: who was waited for is cancelled, who was detached is born all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.log import events as e
from tests.patience import until

from .harness import bodies_of, opened, outcome_of, until_status


@buoy.step
async def first() -> int:
    return 1


@buoy.workflow
async def kid(n: int = 1) -> int:
    return n + int(await buoy.wait_signal("go"))


@buoy.workflow
async def waits() -> int:
    return await first() + await kid()


@buoy.workflow
def waits_sync() -> int:
    return first.call().result() + int(kid())


@buoy.workflow
async def sends_off() -> str:
    await first()
    child = await buoy.start_child(kid)
    await buoy.wait_signal("never")
    return str(child)


def _no_word(child: str, parent: str, done: Any) -> None:
    """The same about a child that the parent had given up."""
    asyncio.get_running_loop().call_soon(done, None)


@buoy.workflow
async def moves_on() -> str:
    task = asyncio.ensure_future(kid())
    await first()
    task.cancel()
    return str(await buoy.wait_signal("on"))


def _no_birth(child: str, created: e.WorkflowCreated, done: Any, workflow: Any) -> None:
    """The parent believes that it has a child, as one whose process dies a moment before."""
    asyncio.get_running_loop().call_soon(done, None)


ALL = [kid, waits, waits_sync, sends_off, moves_on]


async def children_of(app: buoy.Client, run_id: str, count: int) -> list[str]:
    """The ids of the children that were started, in order, once there are so many."""

    async def there() -> bool:
        return len(await bodies_of(app, run_id, e.ChildStarted)) == count

    await until(there, f"{count} children of {run_id}")
    return [started.child for started in await bodies_of(app, run_id, e.ChildStarted)]


@pytest.mark.parametrize("workflow", [waits, waits_sync], ids=["async", "sync"])
async def test_a_child_that_a_jump_leaves_behind_is_cancelled_and_the_new_one_is_not(
    any_url: str, workflow: Any
) -> None:
    async with opened(any_url, *ALL) as app:
        run = await app.start_as("p", workflow)
        (old,) = await children_of(app, "p", 1)
        await until_status(app, old, "waiting_signal")
        await app.jump("p", "first#1")
        _, new = await children_of(app, "p", 2)
        assert old != new
        await until_status(app, old, "cancelled")
        await until_status(app, new, "waiting_signal")
        await app.signal(new, "go", 5)
        assert await outcome_of(app, run) == ("completed", 7)


async def test_the_end_of_a_parent_cancels_the_child_that_a_jump_left_behind(url: str) -> None:
    """The process dies before it has said a word to that child."""
    async with opened(url, *ALL) as app:
        assert app.runner is not None
        outbox = app.runner.outbox
        outbox.cancel = outbox.finish = lambda *_: None  # type: ignore[method-assign, assignment]
        await app.start_as("p", waits)
        (old,) = await children_of(app, "p", 1)
        await app.jump("p", "first#1")
        _, new = await children_of(app, "p", 2)
        await until_status(app, new, "waiting_signal")
        await app.cancel("p")
        await until_status(app, "p", "cancelled")
    async with opened(url, *ALL) as app:
        for child in (old, new):
            await until_status(app, child, "cancelled")


async def test_a_pause_waits_for_a_worker_if_a_child_may_not_know_that_it_was_given_up(url: str) -> None:
    """The process dies before it has said a word to that child. No worker takes a run that is paused."""
    async with opened(url, *ALL) as app:
        assert app.runner is not None
        app.runner.outbox.cancel = _no_word  # type: ignore[method-assign]
        await app.start_as("p", moves_on)
        (child,) = await children_of(app, "p", 1)
        await until_status(app, "p", "waiting_signal")
        await until_status(app, child, "waiting_signal")
    async with buoy.connect(url) as client:
        assert not (await client.pause("p")).done
    async with opened(url, *ALL) as app:
        await until_status(app, child, "cancelled")
        await until_status(app, "p", "paused")


async def test_a_detached_child_is_born_though_a_jump_came_before_its_birth(url: str) -> None:
    """The process dies between the parent's commit and the creation of the child, and then a person jumps back."""
    async with opened(url, *ALL) as app:
        assert app.runner is not None
        app.runner.outbox.want = _no_birth  # type: ignore[method-assign]
        await app.start_as("p", sends_off)
        await until_status(app, "p", "waiting_signal")
    async with buoy.connect(url) as client:
        await client.jump("p", "first#1")
    async with opened(url, *ALL) as app:
        for child in await children_of(app, "p", 2):
            await until_status(app, child, "waiting_signal")


async def test_a_child_is_born_with_the_input_that_the_log_has(url: str) -> None:
    """The process dies before the birth, and code with another default is deployed."""

    @buoy.workflow(name="kid")
    async def other_kid(n: int = 100) -> int:
        return n + int(await buoy.wait_signal("go"))

    @buoy.workflow(name="waits")
    async def other_waits() -> int:
        return await first() + await other_kid()

    async with opened(url, *ALL) as app:
        assert app.runner is not None
        app.runner.outbox.want = _no_birth  # type: ignore[method-assign]
        await app.start_as("p", waits)
        (child,) = await children_of(app, "p", 1)
    async with opened(url, other_waits, other_kid) as app:
        await app.signal("p", "any", 0)  # the worker takes the run
        await until_status(app, child, "waiting_signal")
        (created,) = await bodies_of(app, child, e.WorkflowCreated)
        assert msgspec.json.decode(created.input) == {"n": 1}
        await app.signal(child, "go", 5)
        assert await outcome_of(app, await app.get("p")) == ("completed", 7)
