"""Child runs: deterministic ids, results and errors by message, cancellation passed on, duties that survive a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import buoy
from tests.patience import until

from .harness import opened, result_of, types_of, until_status


@buoy.step
async def double(n: int) -> int:
    return 2 * n


@buoy.workflow
async def kid(n: int) -> int:
    if n == 13:
        raise ValueError("unlucky")
    if n == 99:
        await buoy.wait_signal("never")
    return await double(n)


@buoy.workflow
async def parent(n: int) -> list[int]:
    return list(await asyncio.gather(*(kid(i) for i in range(n))))


@buoy.workflow
def sync_parent(n: int) -> int:
    return int(kid(n)) + 1


@buoy.workflow
async def catches() -> str:
    try:
        await kid(13)
    except buoy.RunFailed as error:
        return error.type
    return "no error"


@buoy.workflow
async def gives_up() -> str:
    try:
        async with asyncio.timeout(0.05):
            await kid(99)
    except TimeoutError:
        return "given up"
    return "?"


@buoy.workflow
async def sends_off() -> str:
    return str(await buoy.start_child(kid, 4))


@buoy.workflow
async def counts(n: int) -> int:
    if n < 4:
        buoy.continue_as_new(n + 1)
    return await double(n)


ALL = [kid, parent, sync_parent, catches, gives_up, sends_off, counts]


async def only_child(app: buoy.Client) -> str:
    """The id of the one other run, once it was born."""
    others: list[str] = []

    async def born() -> bool:
        others[:] = [each.document.run_id for each in (await app.runs()).runs if each.document.run_id != "p"]
        return bool(others)

    await until(born, "the child")
    (child,) = others
    return child


async def test_a_parent_gets_the_results_of_its_children_in_the_order_of_its_calls(url: str) -> None:
    async with opened(url, *ALL) as app:
        run = await app.start_as("p", parent, 3)
        assert await result_of(app, run) == [0, 2, 4]
        children = [record.document for record in (await app.runs()).runs if record.document.parent is not None]
        assert {child.parent.run for child in children if child.parent} == {"p"}
        assert all(child.run_id.startswith("p.kid-") for child in children)


async def test_a_sync_workflow_calls_a_child_like_a_function(url: str) -> None:
    async with opened(url, *ALL) as app:
        assert await result_of(app, await app.start_as("p", sync_parent, 5)) == 11


async def test_the_failure_of_a_child_is_an_error_that_its_parent_can_catch(url: str) -> None:
    async with opened(url, *ALL) as app:
        assert await result_of(app, await app.start_as("p", catches)) == "ValueError"


async def test_a_child_that_its_parent_gives_up_is_cancelled(url: str) -> None:
    async with opened(url, *ALL) as app:
        assert await result_of(app, await app.start_as("p", gives_up)) == "given up"
        child = await only_child(app)
        await until_status(app, child, "cancelled")


async def test_cancelling_a_parent_cancels_its_child(url: str) -> None:
    @buoy.workflow
    async def waits() -> int:
        return int(await kid(99))

    async with opened(url, *ALL, waits) as app:
        run = await app.start_as("p", waits)
        await until_status(app, "p", "waiting")
        await run.cancel("enough")
        await until_status(app, "p", "cancelled")
        child = await only_child(app)
        await until_status(app, child, "cancelled")


async def test_a_detached_child_lives_on_its_own(url: str) -> None:
    async with opened(url, *ALL) as app:
        child = await result_of(app, await app.start_as("p", sends_off))
        assert await only_child(app) == child  # promised by the parent's log, so it comes for certain
        assert await result_of(app, await app.get(child)) == 8
        assert (await (await app.get(child)).document()).parent is None


async def test_a_run_that_continues_as_new_has_the_result_of_its_last_successor(url: str) -> None:
    async with opened(url, *ALL) as app:
        run = await app.start_as("c", counts, 0)
        assert await run.result() == 8
        assert "workflow_completed" in await types_of(app, "c.c5")


async def test_a_child_whose_cancellation_nobody_drives_still_tells_its_parent(url: str) -> None:
    @buoy.workflow
    async def sees() -> str:
        try:
            return str(await kid(99))
        except buoy.RunCancelled:
            return "seen"

    async with opened(url, *ALL, sees) as app:
        run = await app.start_as("p", sees)
        await until_status(app, "p", "waiting")
        child = await only_child(app)
        await until_status(app, child, "waiting_signal")
    async with buoy.connect(url) as client:
        assert (await client.cancel(child)).done
    async with opened(url, *ALL, sees) as app:
        assert await result_of(app, await app.get(run.id)) == "seen"


async def test_the_duties_of_a_run_that_ended_are_done_by_whoever_takes_its_task(url: str) -> None:
    """The end of the child is durable and its parent was not told: as if its process had died in between."""
    async with opened(url, *ALL) as app:
        assert app.runner is not None
        told: list[Any] = []
        app.runner.outbox.finish = lambda *duties: told.append(duties)  # type: ignore[method-assign]
        await app.start_as("p", sync_parent, 5)
        await until(lambda: bool(told), "the end of the child")
        await until_status(app, "p", "waiting")
    async with opened(url, *ALL) as app:
        assert await result_of(app, await app.get("p")) == 11


@pytest.mark.parametrize("bad", ["seven", [1]])
async def test_a_child_with_wrong_arguments_fails_with_a_reason(url: str, bad: Any) -> None:
    @buoy.workflow
    async def wrong() -> int:
        return int(await kid(bad))

    async with opened(url, *ALL, wrong) as app:
        with pytest.raises(buoy.RunFailed):
            await result_of(app, await app.start_as("p", wrong))
