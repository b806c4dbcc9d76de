"""Workflows in ordinary unit tests: skipped time, a store in memory, and a word when nothing can happen any more."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import buoy
from buoy.testing import LocalApp, SkippingClock, Stuck, local_app

from . import flows

DAY_S = 86400.0
# Real work outside of the loop, for which the clock of the test has to wait.
A_MOMENT_S = 0.02


@buoy.step(timeout="2s")
async def slow() -> str:
    await asyncio.sleep(100)
    return "never"


@buoy.step
def blocking(item: str) -> str:
    time.sleep(A_MOMENT_S)
    return item


@buoy.step
async def elsewhere() -> str:
    return await asyncio.to_thread(lambda: (time.sleep(A_MOMENT_S), "from a thread")[1])


@buoy.step
async def by_pipe() -> str:
    process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.05; echo hi", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode().strip()


@buoy.workflow
async def outside_work() -> list[str]:
    async with asyncio.timeout(3600):
        found = [await blocking.call("a"), await elsewhere(), await by_pipe()]
    try:
        await slow()
    except buoy.StepFailed as failed:
        found.append(failed.type)
    return found


@buoy.workflow
async def years() -> str:
    await buoy.sleep("4000d")
    return buoy.now().isoformat()


def test_a_whole_checkout_in_an_async_test() -> None:
    async def main() -> tuple[Any, float]:
        clock = SkippingClock()
        async with local_app(flows.checkout, clock=clock) as app:
            run = await app.start(flows.checkout, "lamp")
            await app.answer(run.id, True, (await run.question()).question_id)
            await app.signal(run.id, "packed", {"boxes": 2})
            return await run.result(), clock.passed_s

    result, passed_s = asyncio.run(main())
    assert result["packed"] == {"boxes": 2}
    assert result["tries"] == 2
    assert DAY_S < passed_s < 2 * DAY_S


def test_a_plain_test_with_the_fixture(buoy_app: LocalApp, buoy_clock: SkippingClock) -> None:
    result = buoy_app.run_with(flows.ANSWERS, flows.checkout, "lamp")
    assert result["packed"] == 7
    assert buoy_clock.passed_s > 3 * DAY_S
    assert buoy_app.run_with(flows.ANSWERS, flows.sync_checkout, "lamp")[-1] is True


def test_years_pass_in_no_time(buoy_app: LocalApp) -> None:
    assert buoy_app.run(years) == "2036-12-14T00:00:00+00:00"


def test_what_happens_outside_of_the_loop_is_waited_for_before_time_moves(buoy_app: LocalApp) -> None:
    assert buoy_app.run(outside_work) == ["a", "from a thread", "hi", "TimeoutError"]


def test_a_failed_run_raises_as_elsewhere(buoy_app: LocalApp) -> None:
    with pytest.raises(buoy.RunFailed, match="out of stock"):
        buoy_app.run(flows.broken_payment, "lamp")


def test_who_waits_for_ever_is_told_for_what(buoy_app: LocalApp) -> None:
    with pytest.raises(Stuck, match=r"run asks-\w+ waits for Ship it\?"):
        buoy_app.run(flows.asks)


def test_an_entry_that_nothing_called_for_is_named_when_nothing_can_happen_any_more(buoy_app: LocalApp) -> None:
    with pytest.raises(Stuck, match=r"waits for Ship it\?; entry 1 of the script \(on: Shp it\?\) matched nothing$"):
        buoy_app.run_with([{"on": "Shp it?", "answer": True}], flows.asks)


@pytest.mark.parametrize("given", ["asks", blocking], ids=["name", "step"])
def test_what_is_no_workflow_is_refused_with_what_to_pass(buoy_app: LocalApp, given: Any) -> None:
    with pytest.raises(buoy.BadInput, match=r"a test app takes a workflow: .*; (pass|call)"):
        buoy_app.run(given)


def test_an_answer_of_the_wrong_form_fails_the_test(buoy_app: LocalApp) -> None:
    with pytest.raises(buoy.BadInput, match="expected yes or no"):
        buoy_app.run_with([{"on": "Ship it?", "answer": "perhaps"}], flows.asks)


def test_the_store_of_an_app_stays_from_call_to_call(buoy_app: LocalApp) -> None:
    async def start(app: buoy.Client) -> str:
        return (await app.start_as("mine", flows.asks)).id

    async def finish(app: buoy.Client) -> Any:
        run = await app.get("mine")
        await app.answer("mine", False, (await run.question()).question_id)
        return await run.result()

    assert buoy_app.do(start, flows.asks) == "mine"
    assert buoy_app.do(finish, flows.asks) is False


def test_in_async_code_the_plain_ways_are_refused_with_a_word(buoy_app: LocalApp) -> None:
    async def main() -> None:
        with pytest.raises(buoy.NotAllowedHere, match="use local_app in async tests"):
            buoy_app.run(years)

    asyncio.run(main())


def test_the_clock_can_be_moved_by_hand() -> None:
    clock = SkippingClock()
    before = clock.now()
    assert clock.advance("3d") == before + 3 * DAY_S
    assert clock.monotonic() == 3 * DAY_S
    with pytest.raises(buoy.BadInput):
        clock.advance("a while")


def test_afterwards_the_loop_goes_by_real_time_again() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        real = vars(loop)["_selector"]
        async with local_app(years) as app:
            await (await app.start(years)).result()
            assert vars(loop)["_selector"] is not real
        assert vars(loop)["_selector"] is real
        assert "time" not in vars(loop)

    asyncio.run(main())
