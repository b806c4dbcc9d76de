"""Steps with a queue: a worker that serves it executes them, and results come back as messages."""

from __future__ import annotations

import pytest

import buoy

from .harness import opened, result_of, types_of, until_status

TRIED: list[tuple[int, str]] = []


@buoy.step(queue="gpu", retries=2, backoff="10ms")
async def render(n: int) -> list[int]:
    TRIED.append((buoy.info().attempt or 0, buoy.idempotency_key()))
    if n == 13:
        raise ValueError("too dark")
    if n == 2 and len(TRIED) == 1:
        raise OSError("once")
    return [n, n]


@buoy.step(queue="gpu")
def plain(n: int) -> int:
    return n + 1


@buoy.workflow
async def film(n: int) -> list[int]:
    return await render(n) + [await plain.call(n)]


@buoy.workflow
def sync_film(n: int) -> int:
    return plain(n)


@buoy.workflow
async def dark() -> str:
    try:
        await render(13)
    except buoy.StepFailed as error:
        return f"{error.type} in {error.step}"
    return "?"


ALL = [film, sync_film, dark]


@pytest.fixture(autouse=True)
def _forget() -> None:
    TRIED.clear()


async def test_a_step_with_a_queue_waits_for_a_runner_that_serves_it(url: str) -> None:
    async with opened(url, *ALL) as app:
        run = await app.start_as("f", film, 7)
        await until_status(app, "f", "waiting")
        assert TRIED == []
        async with buoy.open(url, workflows=[render, plain], queues=("gpu",)) as elsewhere:
            assert await result_of(app, run) == [7, 7, 8]
            assert elsewhere.runner is not None
        assert "child_finished" in await types_of(app, "f")


async def test_attempts_and_key_belong_to_the_step_wherever_it_runs(url: str) -> None:
    async with opened(url, *ALL) as app, buoy.open(url, workflows=[render, plain], queues=("gpu",)):
        assert await result_of(app, await app.start_as("f", film, 2)) == [2, 2, 3]
    assert [attempt for attempt, _ in TRIED] == [1, 2]
    assert len({key for _, key in TRIED}) == 1


async def test_its_failure_is_a_failure_of_a_step(url: str) -> None:
    async with opened(url, *ALL) as app, buoy.open(url, workflows=[render, plain], queues=("gpu",)):
        assert await result_of(app, await app.start_as("d", dark)) == "ValueError in render#1"


async def test_a_runner_that_serves_the_queue_itself_runs_it_itself(url: str) -> None:
    async with buoy.open(url, workflows=ALL, queues=("default", "gpu")) as app:
        assert await (await app.start_as("s", sync_film, 4)).result() == 5


def test_outside_of_workflows_it_is_a_plain_function() -> None:
    assert plain(1) == 2


def test_a_queue_and_a_compensation_together_are_refused() -> None:
    with pytest.raises(buoy.BadInput, match="a queue and a compensation"):

        @buoy.step(queue="gpu", compensate=plain)
        def both(n: int) -> int:
            return n
