"""Idempotency keys: no two calls of steps share one, wherever they are made; and where calls cannot be durable."""

from __future__ import annotations

import asyncio
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.log import events as e

from .harness import bodies_of, opened, result_of


@buoy.step
def key_of(name: str) -> str:
    return f"{name}:{buoy.idempotency_key()}"


@buoy.step
async def async_key_of(name: str) -> str:
    await asyncio.sleep(0)
    return f"{name}:{buoy.idempotency_key()}"


@buoy.step(retries=2, timeout="5s")
async def careful(name: str) -> str:
    return f"{name}:{buoy.idempotency_key()}"


# ---- threads


async def test_a_thread_that_a_step_starts_has_no_key_but_advice(url: str) -> None:
    @buoy.step
    def fans_out() -> list[str]:
        def key() -> str:
            try:
                return buoy.idempotency_key()
            except buoy.NotAllowedHere as error:
                return str(error)

        with ThreadPoolExecutor(2) as pool:
            bare = pool.submit(key).result()
            handed = [pool.submit(copy_context().run, key) for _ in range(2)]
            return [bare, *(each.result() for each in handed)]

    @buoy.workflow
    def flow() -> list[str]:
        return fans_out()

    async with opened(url, flow) as app:
        bare, *handed = await result_of(app, await app.start_as("r", flow))
    assert "no step is known in this thread" in bare
    assert "contextvars.copy_context().run" in bare
    assert handed == ["r/fans_out#1/0"] * 2


def test_where_no_step_runs_there_is_no_key() -> None:
    with pytest.raises(buoy.NotAllowedHere, match=r"buoy\.idempotency_key works inside a step only"):
        buoy.idempotency_key()


async def test_workflow_code_has_no_key(url: str) -> None:
    @buoy.workflow
    async def flow() -> str:
        return buoy.idempotency_key()

    async with opened(url, flow) as app:
        with pytest.raises(buoy.RunFailed, match="inside a step only, and this is workflow code"):
            await result_of(app, await app.start(flow))


# ---- direct calls


async def test_each_direct_call_of_a_step_has_a_key_of_its_own() -> None:
    keys = [
        key_of("a"),
        key_of("a"),
        await async_key_of("a"),
        await key_of.call("a"),
        *await asyncio.gather(async_key_of("a"), async_key_of("a")),
    ]
    assert len(set(keys)) == len(keys)
    assert all(":direct-call/" in key for key in keys)


async def test_in_a_direct_call_a_step_can_ask_all_that_it_asks_in_a_run() -> None:
    @buoy.step(name="nosy")
    async def nosy() -> Any:
        buoy.progress(1, 2, "half")
        assert not buoy.abandoned()
        about = buoy.info()
        assert about.key == buoy.idempotency_key()
        return msgspec.structs.asdict(about)

    about = await nosy()
    expected = {"run_id": "direct-call", "step": "nosy", "leaf": "nosy#1", "attempt": 1}
    assert {**about, **expected} == about
    with pytest.raises(buoy.NotAllowedHere, match="workflows and steps only"):
        buoy.info()


# ---- a step inside a step


async def test_steps_called_inside_a_step_have_keys_of_their_own_that_are_stable(url: str) -> None:
    seen: list[list[str]] = []

    @buoy.step(retries=1, backoff="1ms")
    async def outer() -> list[str]:
        own = buoy.idempotency_key()
        # The key is taken when the call is made, no matter in which order the calls are executed.
        first, second = async_key_of("a"), async_key_of("b")
        keys = [await second, await first, key_of("c"), buoy.idempotency_key()]
        assert keys[-1] == own
        seen.append(keys)
        if len(seen) == 1:
            raise ConnectionError("again")
        return keys

    @buoy.workflow
    async def flow() -> list[str]:
        return await outer()

    async with opened(url, flow) as app:
        keys = await result_of(app, await app.start_as("r", flow))
        assert len(await bodies_of(app, "r", e.StepStarted)) == 2
    assert keys == [
        "b:r/outer#1/0/async_key_of#2",
        "a:r/outer#1/0/async_key_of#1",
        "c:r/outer#1/0/key_of#1",
        "r/outer#1/0",
    ]
    assert seen[0] == seen[1]


async def test_options_that_do_not_apply_inside_a_step_are_told(url: str) -> None:
    @buoy.step
    async def outer() -> str:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await careful("a")
            await async_key_of("b")
        assert [each.filename for each in caught] == [__file__]
        return str(caught[0].message)

    @buoy.workflow
    async def flow() -> str:
        return await outer()

    async with opened(url, flow) as app:
        told = await result_of(app, await app.start(flow))
    assert told == (
        "step careful is called inside step outer, which makes it a plain function: "
        "Buoy ignores its retries, timeout; call it from the workflow"
    )


async def test_an_inner_step_knows_that_the_outer_one_is_abandoned(url: str) -> None:
    noticed: list[bool] = []

    @buoy.step
    def inner() -> None:
        while not buoy.abandoned():
            pass
        noticed.append(True)

    @buoy.step(timeout="50ms")
    def outer() -> None:
        inner()

    @buoy.workflow
    def flow() -> None:
        outer()

    async with opened(url, flow) as app:
        with pytest.raises(buoy.RunFailed, match="TimeoutError"):
            await result_of(app, await app.start(flow))
    assert noticed == [True]


# ---- where a call would record nothing


@buoy.workflow
async def checkout(order: str) -> str:
    return order


@buoy.workflow
def sync_checkout(order: str) -> str:
    return order


@pytest.mark.parametrize("workflow", [checkout, sync_checkout])
async def test_a_workflow_called_outside_of_a_run_is_refused_with_advice(workflow: buoy.Workflow[[str], str]) -> None:
    expected = r"workflow \w*checkout is called outside of a run.* `await app.start\(\w*checkout, ...\)` or `buoy run`"
    with pytest.raises(buoy.NotAllowedHere, match=expected):
        workflow("A")


async def test_a_workflow_called_inside_a_step_is_refused_with_advice(url: str) -> None:
    @buoy.step
    async def calls() -> str:
        try:
            return str(await checkout("A"))
        except buoy.NotAllowedHere as error:
            return str(error)

    @buoy.workflow
    async def flow() -> str:
        return await calls()

    async with opened(url, flow) as app:
        assert "workflow checkout is called inside step calls" in await result_of(app, await app.start(flow))


async def test_an_async_step_called_plainly_in_a_sync_workflow_is_refused_with_advice(url: str) -> None:
    @buoy.workflow
    def calls() -> str:
        try:
            async_key_of("a")
        except buoy.NotAllowedHere as error:
            return str(error)
        return "?"

    @buoy.workflow
    def follows() -> list[str]:
        return [async_key_of.call("a").result(), *buoy.gather(async_key_of.call("b"))]

    async with opened(url, calls, follows) as app:
        told = await result_of(app, await app.start(calls))
        assert told == (
            "step async_key_of is async, and a sync workflow cannot await it; "
            "write `async_key_of.call(...).result()`, or `buoy.gather(async_key_of.call(...), ...)`"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = await app.start_as("r", follows)
            assert await result_of(app, run) == ["a:r/async_key_of#1/0", "b:r/async_key_of#2/0"]


async def test_a_thread_without_the_context_of_its_step_is_told_so(url: str) -> None:
    @buoy.step
    def spawns() -> list[str]:
        said: list[str] = []

        def inside() -> None:
            for call in (lambda: buoy.progress(1, 2), buoy.abandoned):
                try:
                    call()
                except buoy.NotAllowedHere as error:
                    said.append(str(error))

        for target in (inside, partial(copy_context().run, inside)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        return said

    @buoy.workflow
    async def calls() -> list[str]:
        return await spawns.call()

    async with opened(url, calls) as app:
        progress, abandoned = await result_of(app, await app.start(calls))
    assert progress.startswith("buoy.progress works inside a step only, and no step is known in this thread")
    assert "contextvars.copy_context().run" in abandoned
