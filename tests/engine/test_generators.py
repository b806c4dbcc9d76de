"""An async generator that is left before its end is ended by the loop in which it began."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.engine.code import async_generators
from buoy.engine.code.async_generators import FirstHook, Generators
from buoy.engine.code.private_loop import PrivateLoop
from tests.patience import turns, until

from .harness import opened, result_of

SEEN: list[Any] = []
HELD: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()
    HELD.clear()


async def numbers(place: str) -> AsyncIterator[int]:
    try:
        for number in range(9):
            yield number
    finally:
        await asyncio.sleep(0)
        SEEN.append((place, type(asyncio.get_running_loop()).__name__))


@buoy.step
async def first_number(place: str) -> int:
    async for number in numbers(place):
        return number
    raise AssertionError


@buoy.workflow
async def leaves_generators() -> int:
    async for number in numbers("workflow"):
        if number == 1:
            break
    found = await first_number("step")
    await first_number("again")
    return found + number


def test_a_workflows_generator_ends_in_the_workflow_and_a_steps_in_the_real_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(f"sqlite:///{tmp_path}/runs.db", leaves_generators) as app:
            assert await result_of(app, await app.start(leaves_generators)) == 1
            gc.collect()
            await until(lambda: len(SEEN) == 3, "the generators to end")

    asyncio.run(main())
    real = "_UnixSelectorEventLoop"
    assert sorted(SEEN) == [("again", real), ("step", real), ("workflow", "PrivateLoop")]


@buoy.step
async def collects() -> int:
    return gc.collect()


@buoy.step
async def cleans_up() -> str:
    SEEN.append("cleaned up")
    return "clean"


@buoy.workflow
async def leaves_one_in_a_cycle() -> list[str]:
    kept: list[str] = []

    async def numbers_of_its_own() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            kept.append(await cleans_up())

    generator = numbers_of_its_own()
    cycle: list[Any] = [generator]
    cycle.append(cycle)
    async for _ in generator:
        break
    del generator, cycle
    await collects()
    await buoy.sleep("10ms")
    return kept


def test_what_the_collector_finds_while_a_step_runs_does_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes when it likes, at a replay at another time: a step of it would be found nowhere in the log."""

    async def main() -> list[str]:
        async with opened(f"sqlite:///{tmp_path}/runs.db", leaves_one_in_a_cycle) as app:
            return await result_of(app, await app.start(leaves_one_in_a_cycle))

    gc.disable()  # but for when the step says so
    try:
        assert asyncio.run(main()) == []
    finally:
        gc.enable()
    assert SEEN == []
    assert "numbers_of_its_own" in caplog.text and "aclosing" in caplog.text


@buoy.workflow
async def gives_one_away() -> int:
    generator = numbers("given away")
    HELD.append(generator)
    return await anext(generator)


def test_a_generator_that_outlives_its_run_never_ends_on_the_real_loop(tmp_path: Path) -> None:
    before = dict(async_generators._OWNERS)

    async def main() -> None:
        async with opened(f"sqlite:///{tmp_path}/runs.db", gives_one_away) as app:
            assert await result_of(app, await app.start(gives_one_away)) == 0
            HELD.clear()
            gc.collect()
            await turns()

    asyncio.run(main())
    assert SEEN == []
    assert async_generators._OWNERS.items() <= before.items(), "nothing is left of it"


def test_what_is_no_workflows_is_handed_on_to_the_hooks_that_were_there(tmp_path: Path) -> None:
    told: list[str] = []

    async def main() -> None:
        first, last = sys.get_asyncgen_hooks()

        def one(generator: AsyncGenerator[Any, Any]) -> None:
            told.append("first")
            first(generator)

        def other(generator: AsyncGenerator[Any, Any]) -> None:
            told.append("last")
            last(generator)

        sys.set_asyncgen_hooks(one, other)
        async with opened(f"sqlite:///{tmp_path}/runs.db", leaves_generators) as app:
            assert await result_of(app, await app.start(leaves_generators)) == 1
            told.clear()
            async for _ in numbers("outside"):
                break
            gc.collect()
            await until(lambda: ("outside", "_UnixSelectorEventLoop") in SEEN, "the generator to end")

    asyncio.run(main())
    assert told == ["first", "last"]
    assert ("outside", "_UnixSelectorEventLoop") in SEEN
    assert type(sys.get_asyncgen_hooks().firstiter) is not FirstHook, "asyncio puts back what was there before it"


def test_an_address_that_is_used_again_is_not_taken_for_the_workflows() -> None:
    closed: list[Any] = []
    generator = numbers("later")
    Generators(closed.append).add(generator)  # type: ignore[arg-type]
    handed_on: list[Any] = []
    FirstHook(handed_on.append)(generator)  # type: ignore[arg-type]
    assert handed_on == [generator]
    async_generators._LastHook(handed_on.append)(generator)  # type: ignore[arg-type]
    assert handed_on == [generator, generator] and closed == []


def test_where_no_loop_cares_for_generators_none_is_left_to_ours() -> None:
    entered = PrivateLoop(None).entered  # type: ignore[abstract, arg-type]
    nested = PrivateLoop(None).entered  # type: ignore[abstract, arg-type]
    with entered:
        with nested:
            pass
        assert type(sys.get_asyncgen_hooks().firstiter) is FirstHook
    assert tuple(sys.get_asyncgen_hooks()) == (None, None)

    async def main() -> None:
        with entered:
            pass
        assert type(sys.get_asyncgen_hooks().firstiter) is FirstHook, "they stay where another loop's are behind them"

    asyncio.run(main())
