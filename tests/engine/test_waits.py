"""Waits: questions to people, signals, and sleeps that no restart makes longer."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import LeafId
from buoy.core.log import events as e

from .harness import (
    bodies_of,
    earlier,
    log_of,
    opened,
    plant,
    renamed,
    result_of,
    state_of,
    store_at,
    types_of,
    until_event,
    until_status,
)
from .scripted_steps import WITNESS, work


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


@buoy.workflow
async def asks(kind: str) -> Any:
    match kind:
        case "confirm":
            return await buoy.ask("Ship it?", kind="confirm")
        case "choose":
            return await buoy.ask("Which?", options=["red", "blue"])
        case "choose_many":
            return await buoy.ask("Which?", kind="choose_many", options=["red", "blue", "green"])
        case "form":
            return await buoy.ask("Address?", schema={"type": "object", "required": ["city"]})
        case _:
            return await buoy.ask("Who?", detail="a name")


# ---- questions


@pytest.mark.parametrize(
    ("kind", "wrong", "right", "stored"),
    [
        ("confirm", "perhaps", "yes", True),
        ("choose", "green", "blue", "blue"),
        ("choose_many", ["red", "red"], ["green", "red"], ["green", "red"]),
        ("form", {"street": 1}, {"city": "Ulm"}, {"city": "Ulm"}),
        ("text", 7, "Ann", "Ann"),
    ],
)
async def test_a_wrong_answer_is_refused_and_the_question_stays_open(
    kind: str, wrong: Any, right: Any, stored: Any, every_url: str
) -> None:
    async with opened(every_url, asks) as app:
        run = await app.start_as("run", asks, kind)
        await until_status(app, "run", "awaiting_input")
        before = await types_of(app, "run")
        with pytest.raises(buoy.BadInput):
            await run.answer(wrong)
        assert await types_of(app, "run") == before
        await run.answer(right)
        assert await result_of(app, run) == stored


async def test_a_second_answer_is_refused(url: str) -> None:
    async with opened(url, asks) as app:
        run = await app.start_as("run", asks, "text")
        await until_status(app, "run", "awaiting_input")
        outcomes = await asyncio.gather(*(run.answer(f"a{n}") for n in range(5)), return_exceptions=True)
        assert sum(not isinstance(each, Exception) for each in outcomes) == 1
        refused = [each for each in outcomes if isinstance(each, Exception)]
        assert [each.reason for each in refused if isinstance(each, buoy.UnknownQuestion)] == ["answered"] * 4
        assert await result_of(app, run) in {f"a{n}" for n in range(5)}
        assert len(await bodies_of(app, "run", e.InteractionResponse)) == 1
        with pytest.raises(buoy.UserError):
            await run.answer("too late")


async def test_an_unknown_question_is_refused_by_name(url: str) -> None:
    async with opened(url, asks) as app:
        run = await app.start_as("run", asks, "text")
        await until_status(app, "run", "awaiting_input")
        with pytest.raises(buoy.UnknownQuestion, match="open: run/ask#1/0") as refused:
            await run.answer("x", question_id="run/ask#2/0")
        assert refused.value.reason == "never_asked"
        with pytest.raises(buoy.UnknownRun):
            await app.answer("nobody", "x")


async def test_with_several_questions_the_answer_must_say_which(url: str) -> None:
    @buoy.workflow
    async def many() -> list[str]:
        async def leg(n: int) -> str:
            return str(await buoy.ask(f"Question {n}"))

        return list(await asyncio.gather(leg(1), leg(2), buoy.ask("Question 3")))

    async with opened(url, many) as app:
        run = await app.start_as("run", many)
        await until_event(app, "run", "interaction_requested", 3)
        with pytest.raises(buoy.UnknownQuestion, match="say which") as refused:
            await run.answer("x")
        assert refused.value.reason == "several_open"
        ids = [leaf.question_id for leaf in (await state_of(app, "run")).questions()]
        assert sorted(ids) == ["run/1/ask#1/0", "run/2/ask#1/0", "run/ask#1/0"]
        for question in sorted(ids, reverse=True):
            await run.answer(question, question)
        assert await result_of(app, run) == ["run/1/ask#1/0", "run/2/ask#1/0", "run/ask#1/0"]


async def test_an_answer_while_nobody_drives_the_run_is_taken_by_the_next_worker(every_url: str) -> None:
    async with opened(every_url, asks) as app:
        await app.start_as("run", asks, "confirm")
        state = await until_status(app, "run", "awaiting_input")
        first_id = state.questions()[0].question_id
    async with buoy.connect(every_url) as client:
        assert (await client.state("run")).questions()[0].question_id == first_id
        await client.answer("run", True, first_id)
        with pytest.raises(buoy.WrongState, match="answered already"):
            await client.answer("run", False, first_id)
        assert (await client.state("run")).status == "awaiting_input"
    async with opened(every_url, asks) as app:
        assert await result_of(app, await app.get("run")) is True


async def test_a_question_keeps_its_id_after_a_crash_and_is_not_asked_again(url: str, tmp_path: Any) -> None:
    async with opened(url, asks) as app:
        await app.start_as("run", asks, "text")
        log = await until_event(app, "run", "interaction_requested")
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        await plant(store, "run", log)
    async with opened(second, asks) as app:
        await until_event(app, "run", "claimed", 2)
        state = await state_of(app, "run")
        assert [leaf.question_id for leaf in state.questions()] == ["run/ask#1/0"]
        await app.answer("run", "Ann", "run/ask#1/0")
        assert await result_of(app, await app.get("run")) == "Ann"
        assert len(await bodies_of(app, "run", e.InteractionRequested)) == 1


async def test_a_question_that_was_given_up_takes_no_answer(url: str) -> None:
    @buoy.workflow
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.02):
                return str(await buoy.ask("Quick?"))
        except TimeoutError:
            return str(await buoy.wait_signal("go"))

    async with opened(url, impatient) as app:
        run = await app.start_as("run", impatient)
        await until_event(app, "run", "leaf_cancelled")
        with pytest.raises(buoy.UnknownQuestion) as refused:
            await run.answer("late", "run/ask#1/0")
        assert refused.value.reason == "withdrawn"
        await run.signal("go", "on")
        assert await result_of(app, run) == "on"
        with pytest.raises(buoy.UnknownQuestion) as refused:
            await run.answer("late")
        assert refused.value.reason == "none_open"


async def test_impossible_questions_are_refused_where_they_are_asked(url: str) -> None:
    @buoy.workflow
    async def wrong() -> list[str]:
        seen = []
        for make in (
            lambda: buoy.ask(" "),
            lambda: buoy.ask("x", kind="choose"),
            lambda: buoy.ask("x", kind="form"),
            lambda: buoy.ask("x", schema={"type": "nonsense"}),
        ):
            try:
                await make()
            except buoy.BadInput as error:
                seen.append(type(error).__name__)
        return seen

    async with opened(url, wrong) as app:
        run = await app.start_as("run", wrong)
        assert await result_of(app, run) == ["BadInput"] * 4
        assert "interaction_requested" not in await types_of(app, "run")


# ---- signals


@buoy.workflow
async def collects(names: list[str]) -> list[Any]:
    await work("first")
    return [await buoy.wait_signal(name) for name in names]


async def test_a_signal_may_come_before_or_after_its_wait(every_url: str) -> None:
    async with opened(every_url, collects) as app:
        run = await app.start_as("run", collects, ["a", "b", "a"])
        await until_status(app, "run", "waiting_signal")
        await run.signal("b", "b1")
        await run.signal("a", "a1")
        await run.signal("a", "a2")
        assert await result_of(app, run) == ["a1", "b1", "a2"]
        received = await bodies_of(app, "run", e.SignalReceived)
        assert [body.message for body in received] == [2, 1, 3]


async def test_signals_of_one_name_come_in_the_order_in_which_they_were_sent(url: str) -> None:
    async with opened(url, collects) as app:
        run = await app.start_as("run", collects, ["go"] * 20)
        for n in range(20):
            await run.signal("go", n)
        assert await result_of(app, run) == list(range(20))


async def test_a_signal_with_a_dedupe_id_counts_once(every_url: str) -> None:
    async with opened(every_url, collects) as app:
        run = await app.start_as("run", collects, ["go", "go"])
        receipts = [await run.signal("go", n, dedupe="same") for n in range(3)]
        assert [receipt.duplicate for receipt in receipts] == [False, True, True]
        assert {receipt.number for receipt in receipts} == {1}
        await until_event(app, "run", "signal_waited", 2)
        await run.signal("go", "second")
        assert await result_of(app, run) == [0, "second"]


async def test_a_signal_of_another_name_changes_nothing(url: str) -> None:
    async with opened(url, collects) as app:
        run = await app.start_as("run", collects, ["go"])
        await until_status(app, "run", "waiting_signal")
        await run.signal("other", 1)
        await run.signal("go", 2)
        assert await result_of(app, run) == [2]
        assert "message_refused" not in await types_of(app, "run")


async def test_a_signal_wait_may_time_out_and_the_signal_waits_for_the_next(url: str) -> None:
    @buoy.workflow
    async def twice() -> list[Any]:
        seen: list[Any] = []
        try:
            await buoy.wait_signal("go", timeout="20ms")
        except TimeoutError:
            seen.append("late")
        seen.append(await buoy.wait_signal("go", timeout="1h"))
        return seen

    async with opened(url, twice) as app:
        run = await app.start_as("run", twice)
        await until_event(app, "run", "signal_waited", 2)
        await run.signal("go", 1)
        assert await result_of(app, run) == ["late", 1]
        received = await bodies_of(app, "run", e.SignalReceived)
        assert [body.message for body in received] == [None, 1]


async def test_two_waits_for_one_signal_are_served_in_their_order(url: str) -> None:
    @buoy.workflow
    async def two() -> list[Any]:
        async def leg() -> Any:
            return await buoy.wait_signal("go")

        return list(await asyncio.gather(leg(), leg(), buoy.wait_signal("go")))

    async with opened(url, two) as app:
        run = await app.start_as("run", two)
        await until_event(app, "run", "signal_waited", 3)
        order = [body.leaf for body in await bodies_of(app, "run", e.SignalWaited)]
        for n in range(3):
            await run.signal("go", n)
        await result_of(app, run)
        assert [body.leaf for body in await bodies_of(app, "run", e.SignalReceived)] == order


async def test_a_signal_sent_while_nobody_drives_the_run_wakes_it(every_url: str) -> None:
    async with opened(every_url, collects) as app:
        await app.start_as("run", collects, ["go", "go"])
        await until_status(app, "run", "waiting_signal")
    async with buoy.connect(every_url) as client:
        await client.signal("run", "go", 1)
        await client.signal("run", "go", 2)
    async with opened(every_url, collects) as app:
        assert await result_of(app, await app.get("run")) == [1, 2]
    assert WITNESS.of("run") == {"work#1": 1}


async def test_a_signal_to_an_ended_run_is_refused(url: str) -> None:
    async with opened(url, collects) as app:
        run = await app.start_as("run", collects, [])
        await result_of(app, run)
        with pytest.raises(buoy.WrongState, match="completed already"):
            await run.signal("go")


async def test_a_payload_that_is_too_large_is_refused_at_the_sender(url: str) -> None:
    async with opened(url, collects) as app:
        run = await app.start_as("run", collects, ["go"])
        with pytest.raises(buoy.TooLarge):
            await run.signal("go", "x" * 300_000)
        with pytest.raises(buoy.NotJson):
            await run.signal("go", object())
        with pytest.raises(buoy.BadInput):
            await run.signal("no spaces please")
        await run.signal("go", "small")
        assert await result_of(app, run) == ["small"]


async def test_a_signal_races_a_step_and_the_log_decides(url: str, tmp_path: Any) -> None:
    @buoy.workflow
    async def races() -> list[Any]:
        first = asyncio.ensure_future(buoy.wait_signal("go"))
        second = asyncio.ensure_future(buoy.wait_signal("stop"))
        done, pending = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [len(done), len(pending), await work("then", 3)]

    async with opened(url, races) as app:
        run = await app.start_as("run", races)
        await until_event(app, "run", "signal_waited", 2)
        await asyncio.gather(run.signal("go"), run.signal("stop"))
        assert await result_of(app, run) == [1, 1, 3]


# ---- sleeps


async def test_a_sleep_survives_restarts_without_starting_anew(any_url: str) -> None:
    @buoy.workflow
    async def naps() -> str:
        await asyncio.sleep(3600.0)
        return "slept"

    async with opened(any_url, naps) as app:
        await app.start_as("first", naps)
        log = await until_event(app, "first", "timer_started")
    # It has slept for almost an hour. A timer that starts again would take longer than this test may.
    async with store_at(any_url) as store:
        await plant(store, "run", earlier(renamed(log, "first", "run"), 3599.0))
    for _ in range(2):
        async with opened(any_url, naps) as app:
            await app.record("run")
    async with opened(any_url, naps) as app:
        assert await result_of(app, await app.get("run")) == "slept"
        (timer,) = await bodies_of(app, "run", e.TimerStarted)
        (fired,) = [event for event in await log_of(app, "run") if isinstance(event.body, e.TimerFired)]
    assert timer.due_at <= fired.at


async def test_the_time_of_the_code_is_that_of_the_last_event(url: str) -> None:
    @buoy.workflow
    async def clocks() -> list[float]:
        times = [buoy.now().timestamp()]
        await work("a")
        times.append(buoy.now().timestamp())
        await buoy.sleep("30ms")
        times.append(buoy.now().timestamp())
        return times

    async with opened(url, clocks) as app:
        run = await app.start_as("run", clocks)
        times = await result_of(app, run)
        log = {event.type: event.at for event in await log_of(app, "run")}
    expected = [log["workflow_created"], log["step_completed"], log["timer_fired"]]
    assert times == pytest.approx(expected, abs=1e-5)
    assert times[2] - times[1] >= 0.0299


async def test_an_endless_sleep_can_be_stored_and_cancelled(url: str) -> None:
    @buoy.workflow
    async def waits() -> str:
        forever = asyncio.ensure_future(asyncio.sleep(float("inf")))
        async with asyncio.timeout(float("inf")):
            found = await buoy.wait_signal("go")
        forever.cancel()
        return str(found)

    async with opened(url, waits) as app:
        await app.start_as("run", waits)
        await until_status(app, "run", "waiting_signal")
    async with opened(url, waits) as app:
        run = await app.get("run")
        await run.signal("go", "on")
        assert await result_of(app, run) == "on"


async def test_a_sleep_of_no_sensible_length_is_refused(url: str) -> None:
    @buoy.workflow
    async def wrong() -> list[str]:
        seen = []
        for span in (-1, "soon", float("nan")):
            try:
                await buoy.sleep(span)
            except buoy.BadInput as error:
                seen.append(type(error).__name__)
        return seen

    async with opened(url, wrong) as app:
        assert await result_of(app, await app.start(wrong)) == ["BadInput"] * 3


# ---- clocks


@buoy.step(retries=2, backoff="20ms")
async def second_time_lucky() -> int:
    WITNESS.start()
    if buoy.info().attempt == 1:
        raise RuntimeError("not yet")
    return 1


@buoy.workflow
async def naps() -> str:
    await buoy.sleep(0.3)
    return "awake"


@buoy.workflow
async def has_clock() -> list[float]:
    times = [buoy.now().timestamp()]
    await buoy.sleep(0.2)
    times.append(buoy.now().timestamp())
    await second_time_lucky()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        await buoy.wait_signal("never", timeout=0.1)
    times.append(buoy.now().timestamp())
    return times


async def test_a_log_that_is_ahead_of_this_clock_makes_no_wait_longer(every_url: str) -> None:
    ahead = time.time() + 3600.0
    created = e.Event(1, ahead, e.WorkflowCreated(workflow="has_clock", input=msgspec.Raw(b"{}")))
    async with store_at(every_url) as store:
        await plant(store, "early", [created], cause="created")
    async with opened(every_url, has_clock) as app:
        times = await result_of(app, await app.get("early"))
        log = await log_of(app, "early")
    assert [event.at for event in log] == sorted(event.at for event in log)
    waited = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] >= ahead - 1e-5 and min(waited) >= 0.2 - 1e-5
    assert log[-1].at - ahead < 3600.0


async def test_a_timer_of_a_dead_runner_whose_clock_was_ahead_is_not_longer(every_url: str) -> None:
    ahead = time.time() + 3600.0
    bodies: list[e.Body] = [
        e.WorkflowCreated(workflow="naps", input=msgspec.Raw(b"{}")),
        e.Claimed(runner="dead", cause="created"),
        e.TimerStarted(leaf=LeafId("timer#1"), due_at=ahead + 0.3),
    ]
    async with store_at(every_url) as store:
        await plant(store, "nap", [e.Event(seq, ahead, body) for seq, body in enumerate(bodies, 1)])
    async with opened(every_url, naps) as app:
        assert await result_of(app, await app.get("nap")) == "awake"
