"""Compensation, and going back to earlier steps."""

from __future__ import annotations

import asyncio

import pytest

import buoy
from buoy.engine.authoring.definitions import Step
from tests.patience import turns

from .harness import log_of, opened, plant, renamed, result_of, store_at, types_of, until_event, until_status

SEEN: list[tuple[str, ...]] = []
MENDED: set[str] = set()


@pytest.fixture(autouse=True)
def _forget() -> None:
    SEEN.clear()
    MENDED.clear()


@buoy.step
async def refund(order: str, result: str) -> None:
    SEEN.append(("refund", order, result, buoy.idempotency_key()))


@buoy.step(compensate=refund)
async def charge(order: str) -> str:
    SEEN.append(("charge", order, buoy.idempotency_key()))
    return f"receipt {order}"


@buoy.step
async def stuck_undo(receipt: str) -> None:
    raise RuntimeError("cannot be undone")


@buoy.step(compensate=stuck_undo)
async def sticky() -> str:
    return "stuck"


@buoy.step
async def ship(order: str) -> str:
    SEEN.append(("ship", order))
    if order not in MENDED:
        raise ValueError("no lorry")
    return "shipped"


@buoy.step
async def slow(n: int) -> int:
    SEEN.append(("slow", str(n)))
    await turns()
    return n


@buoy.workflow
async def sale(order: str) -> str:
    first = await charge(order)
    second = await charge(order + "-extra")
    await ship(order)
    return first + second


@buoy.workflow
async def waits(order: str) -> str:
    await charge(order)
    await buoy.wait_signal("go")
    return "done"


@buoy.workflow
async def hopeless() -> str:
    await sticky()
    await charge("x")
    await ship("y")
    return "?"


@buoy.workflow
async def side_by_side() -> list[object]:
    number = await slow(1)
    return [number, *await asyncio.gather(ship("z"), slow(2)), await buoy.ask("Well?", kind="confirm")]


ALL = [sale, waits, hopeless, side_by_side]


async def test_a_failure_undoes_completed_steps_the_last_one_first(url: str) -> None:
    async with opened(url, *ALL) as app:
        with pytest.raises(buoy.RunFailed, match="no lorry"):
            await result_of(app, await app.start_as("s", sale, "a"))
        undone = [each for each in SEEN if each[0] == "refund"]
        assert [each[1:3] for each in undone] == [("a-extra", "receipt a-extra"), ("a", "receipt a")]
        assert undone[0][3] == "s/charge#2/0/compensation"


async def test_a_cancellation_undoes_too(url: str) -> None:
    async with opened(url, *ALL) as app:
        run = await app.start_as("w", waits, "b")
        await until_status(app, "w", "waiting_signal")
        await run.cancel("changed my mind")
        await until_status(app, "w", "cancelled")
        assert [each[0] for each in SEEN] == ["charge", "refund"]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-another"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_step_that_ends_after_the_cancellation_is_undone_also_after_a_crash(
    url: str, is_async: bool, beside: bool
) -> None:
    """It is never given up before its outcome is known; a replay must not take that outcome for the end of a wait."""
    go_on = asyncio.Event()

    @buoy.step(compensate=refund)
    async def pay(order: str) -> str:
        await go_on.wait()
        return "late"

    @buoy.workflow(name="late")
    async def late() -> str:
        if beside:
            return str(await asyncio.gather(charge("c"), pay("p")))
        return await pay("p")

    @buoy.workflow(name="late")
    def late_sync() -> str:
        if beside:
            return str(buoy.gather(charge.call("c"), pay.call("p")))
        return pay.call("p").result()

    workflow = late if is_async else late_sync
    async with opened(url, workflow) as app:
        run = await app.start_as("whole", workflow)
        await until_event(app, "whole", "step_completed" if beside else "step_started")
        await run.cancel()
        await until_event(app, "whole", "cancel_requested")
        go_on.set()
        await until_status(app, "whole", "cancelled")
        log = await log_of(app, "whole")
    assert [event.type for event in log][-3:] == [
        "compensation_started",
        "compensation_completed",
        "workflow_cancelled",
    ]
    asked = next(event.seq for event in log if event.type == "cancel_requested")
    cut = {f"cut-{count}": renamed(log[:count], "whole", f"cut-{count}") for count in range(asked, len(log))}
    async with store_at(url) as store:
        for name, events in cut.items():
            await plant(store, name, events)
    async with opened(url, workflow) as app:
        for name in cut:
            await until_status(app, name, "cancelled")
            types = await types_of(app, name)
            done = types.count("step_completed")
            assert (done, types.count("compensation_completed")) == (1 + beside, 1 + beside), f"{name}: {types}"
            assert "leaf_cancelled" not in types, f"{name}: {types}"


async def test_a_run_that_completes_undoes_nothing(url: str) -> None:
    MENDED.add("c")
    async with opened(url, *ALL) as app:
        await result_of(app, await app.start_as("s", sale, "c"))
        assert not [each for each in SEEN if each[0] == "refund"]


async def test_what_cannot_be_undone_is_said_and_the_rest_is_undone_all_the_same(url: str) -> None:
    async with opened(url, *ALL) as app:
        with pytest.raises(buoy.RunFailed, match=r"sticky#1 could not be undone: RuntimeError: cannot be undone"):
            await result_of(app, await app.start_as("h", hopeless))
        assert ("refund", "x", "receipt x", "h/charge#1/0/compensation") in SEEN
        assert "compensation_failed" in await types_of(app, "h")


def test_a_compensation_that_asks_for_what_nobody_has_is_refused_when_it_is_written() -> None:
    @buoy.step
    async def undo(a: int, b: int) -> None: ...

    with pytest.raises(buoy.BadInput, match="asks for a, b"):

        @buoy.step(compensate=undo)
        async def do(order: str) -> str:
            return order

    assert isinstance(undo, Step)


async def test_a_retry_runs_the_failed_step_again_and_pays_again_what_was_refunded(url: str) -> None:
    async with opened(url, *ALL) as app:
        run = await app.start_as("s", sale, "d")
        with pytest.raises(buoy.RunFailed):
            await result_of(app, run)
        MENDED.add("d")
        plan = await app.plan_retry("s")
        assert (plan.to, set(plan.again)) == ("ship#1", {"charge#1", "charge#2", "ship#1"})
        assert await app.retry("s") == plan
        assert await result_of(app, run) == "receipt dreceipt d-extra"
        keys = [each[2] for each in SEEN if each[0] == "charge"]
        assert len(set(keys)) == 4  # a user's own retry is a new payment


async def test_a_retry_keeps_what_does_not_depend_on_the_failed_step(url: str) -> None:
    async with opened(url, *ALL) as app:
        run = await app.start_as("p", side_by_side)
        with pytest.raises(buoy.RunFailed):
            await result_of(app, run)
        MENDED.add("z")
        await app.retry("p")
        await until_status(app, "p", "awaiting_input")
        assert SEEN.count(("slow", "1")) == 1
        await run.answer(True)
        assert await result_of(app, run) == [1, "shipped", 2, True]


async def test_a_jump_asks_again_unless_answers_are_kept(url: str) -> None:
    MENDED.add("z")
    async with opened(url, *ALL) as app:
        run = await app.start_as("p", side_by_side)
        await until_status(app, "p", "awaiting_input")
        await run.answer(True)
        await result_of(app, run)
        await app.jump("p", "ask#1")
        state = await until_status(app, "p", "awaiting_input")
        assert [leaf.question_id for leaf in state.questions()] == ["p/ask#1/1"]
        await run.answer(False)
        assert await result_of(app, run) == [1, "shipped", 2, False]


async def test_a_jump_to_a_step_that_never_ran_is_refused_and_changes_nothing(url: str) -> None:
    MENDED.add("c")
    async with opened(url, *ALL) as app:
        await result_of(app, await app.start_as("s", sale, "c"))
        before = await types_of(app, "s")
        with pytest.raises(buoy.BadInput, match="has no step 'nowhere'"):
            await app.jump("s", "nowhere")
        with pytest.raises(buoy.WrongState, match="no step of run s failed"):
            await app.retry("s")
        assert await types_of(app, "s") == before


@buoy.workflow(name="buggy")
async def buggy_then() -> int:
    return await slow(3) // 0


@buoy.workflow(name="buggy")
async def mended_now() -> int:
    return await slow(3) + 1


async def test_a_retry_after_a_fault_of_the_code_itself_runs_no_step_again(url: str) -> None:
    async with opened(url, buggy_then) as app:
        with pytest.raises(buoy.RunFailed, match="ZeroDivisionError"):
            await result_of(app, await app.start_as("b", buggy_then))
    async with opened(url, mended_now) as app:
        plan = await app.retry("b")
        assert plan.again == ()
        assert await result_of(app, await app.get("b")) == 4
        assert SEEN.count(("slow", "3")) == 1


async def test_a_retry_says_what_was_never_undone(url: str) -> None:
    async with opened(url, *ALL) as app:
        with pytest.raises(buoy.RunFailed):
            await result_of(app, await app.start_as("h", hopeless))
        assert (await app.plan_retry("h")).never_undone == ("sticky#1",)
