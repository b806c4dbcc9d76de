"""Going back with answers kept, and after a cancellation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.log import events as e
from tests.patience import until

RAN: list[str] = []


@buoy.step
async def slow(name: str) -> str:
    RAN.append(name)
    return name


@buoy.workflow
async def asks_later() -> str:
    first = await slow("a")
    return f"{first} {await buoy.ask('Continue?', kind='confirm')} {await slow('b')}"


@buoy.workflow
def asks_later_sync() -> str:
    first = slow.call("a").result()
    return f"{first} {buoy.ask('Continue?', kind='confirm')} {slow.call('b').result()}"


@buoy.workflow
async def waits() -> str:
    await slow("a")
    return str(await buoy.wait_signal("go"))


@buoy.workflow
def waits_sync() -> str:
    slow.call("a").result()
    return str(buoy.wait_signal("go"))


@pytest.fixture(params=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    RAN.clear()
    return f"sqlite:///{tmp_path / 'x.db'}" if request.param == "sqlite" else f"file://{tmp_path / 'folder'}"


async def reached(app: Any, run_id: str, status: str) -> None:
    async def is_so() -> bool:
        return bool((await app.record(run_id)).document.status == status)

    await until(is_so, f"{run_id} to be {status}")


@pytest.mark.parametrize("workflow", [asks_later, asks_later_sync], ids=["async", "sync"])
async def test_a_kept_answer_waits_until_its_question_is_asked_again(workflow: Any, url: str) -> None:
    async with buoy.open(url, workflows=[workflow]) as app:
        run = await app.start_as("r", workflow)
        await reached(app, "r", "awaiting_input")
        await app.answer("r", True)
        assert await run.result() == "a True b"
        await app.jump("r", "slow#1", keep_answers=True)
        assert await (await app.get("r")).result() == "a True b"
        assert RAN == ["a", "b", "a", "b"]
        log = [event.body for event in await app.store.events("r")]
        assert sum(isinstance(body, e.InteractionRequested) for body in log) == 1
    async with buoy.open(url, workflows=[workflow]) as app:
        # Once more from its log: the whole history must be replayed.
        await app.jump("r", "slow#2", keep_answers=True)
        assert await (await app.get("r")).result() == "a True b"
        assert RAN == ["a", "b", "a", "b", "b"]


@pytest.mark.parametrize("workflow", [waits, waits_sync], ids=["async", "sync"])
async def test_a_cancelled_run_that_is_brought_back_is_not_cancelled_again(workflow: Any, url: str) -> None:
    async with buoy.open(url, workflows=[workflow]) as app:
        await app.start_as("r", workflow)
        await reached(app, "r", "waiting_signal")
        await app.cancel("r")
        await reached(app, "r", "cancelled")
        await app.jump("r", "slow#1")
        await reached(app, "r", "waiting_signal")
        await app.signal("r", "go", "on")
        assert await (await app.get("r")).result() == "on"


GATES: list[asyncio.Event] = []


@buoy.step
async def clean_up() -> None:
    RAN.append("clean-up")
    await GATES[-1].wait()


@buoy.workflow
async def cleans_up() -> str:
    """Waits for a signal in a part of its own; a cancel begins a step while it still waits."""
    waiting = asyncio.create_task(buoy.wait_signal("go"))
    try:
        return f"{await asyncio.shield(waiting)} {await slow('a')}"
    except asyncio.CancelledError:
        await clean_up()
        raise


async def test_what_cleaned_up_after_a_cancel_is_not_kept_by_a_branch_without_the_cancel(url: str) -> None:
    GATES.append(asyncio.Event())
    async with buoy.open(url, workflows=[cleans_up]) as app:
        await app.start_as("r", cleans_up)
        await reached(app, "r", "waiting_signal")
        await app.cancel("r")
        await reached(app, "r", "running")
        await app.signal("r", "go", "on")
        await until(lambda: _received(app), "the signal")
        GATES[-1].set()
        await reached(app, "r", "cancelled")
        wait = next(event.body.leaf for event in await app.store.events("r") if isinstance(event.body, e.SignalWaited))
        # The clean-up began before the signal came: by the order of events it does not rest on it.
        plan = await app.jump("r", wait)
        assert plan.again == (wait, "clean_up#1") and plan.kept == ()
        assert await (await app.get("r")).result() == "on a"
        assert RAN == ["clean-up", "a"]


async def _received(app: Any) -> bool:
    return any(isinstance(event.body, e.SignalReceived) for event in await app.store.events("r"))


@buoy.workflow
async def asks_twice() -> list[Any]:
    return [await buoy.ask("First?", kind="confirm"), await buoy.ask("Second?", kind="choose", options=["fish", "veg"])]


async def test_a_question_that_was_just_answered_is_not_given_again(url: str) -> None:
    async with buoy.open(url, workflows=[asks_twice]) as app:
        run = await app.start_as("r", asks_twice)
        first = await run.question()
        await run.answer(True)
        second = await run.question()
        assert (first.name, second.name) == ("First?", "Second?")
        await run.answer("veg")
        assert await run.result() == [True, "veg"]


async def test_a_second_answer_is_told_as_such_whatever_it_says(url: str) -> None:
    async with buoy.connect(url) as client:
        await client.start_as("r", asks_twice)
    async with buoy.open(url, workflows=[asks_twice]) as app:
        await reached(app, "r", "awaiting_input")
    async with buoy.connect(url) as client:
        await client.answer("r", True)
        with pytest.raises(buoy.WrongState, match="was answered already"):
            await client.answer("r", "veg")


async def test_answers_to_an_answered_a_superseded_and_an_unknown_question_are_refused_each_for_its_reason(
    url: str,
) -> None:
    async with buoy.open(url, workflows=[asks_twice]) as app:
        run = await app.start_as("r", asks_twice)
        first = (await run.question()).question_id
        await run.answer(True)
        second = (await run.question()).question_id
        plan = await app.jump("r", "ask#1")
        assert plan.branch == 1
        again = (await run.question()).question_id
        assert again not in (first, second)
        found = {}
        for question in (first, second, "r/ask#9/0"):
            with pytest.raises(buoy.UnknownQuestion, match=f"open: {again}") as refused:
                await run.answer(False, question)
            found[question] = refused.value.reason
        assert found == {first: "superseded", second: "superseded", "r/ask#9/0": "never_asked"}
        await run.answer(False)
        await run.question()
        with pytest.raises(buoy.UnknownQuestion, match="was answered already") as refused:
            await run.answer(True, again)
        assert refused.value.reason == "answered"


async def test_a_run_that_goes_on_while_it_is_sent_back_is_not_left_behind(url: str, monkeypatch: Any) -> None:
    """It was paused when it was looked at, and had ended when its log was read."""
    async with buoy.open(url, workflows=[waits]) as app:
        run = await app.start_as("r", waits)
        await reached(app, "r", "waiting_signal")
        await app.pause("r")
        await reached(app, "r", "paused")
        look = app.record

        async def looked(run_id: Any) -> Any:
            monkeypatch.setattr(app, "record", look)
            found = await look(run_id)
            await app.resume("r")
            await app.signal("r", "go", 1)
            assert await run.result() == "1"
            return found

        monkeypatch.setattr(app, "record", looked)
        await app.jump("r", "slow#1")
        # The signal is there again, since the branch hides that it was received.
        assert await (await app.get("r")).result() == "1"
        assert RAN == ["a", "a"]


async def test_a_run_that_is_taken_while_it_is_sent_back_is_held_first(url: str, monkeypatch: Any) -> None:
    """No process drove it when it was looked at; a step of it is under way when its log is read."""
    go_on = asyncio.Event()
    running: list[int] = []

    @buoy.step
    async def long() -> str:
        running.append(1)
        assert len(running) == 1, "executed twice at once"
        await go_on.wait()
        running.pop()
        return "done"

    @buoy.workflow
    async def works() -> str:
        return await long()

    async with buoy.connect(url) as outside, buoy.open(url, workflows=[works]) as app:
        look = outside.record

        async def looked(run_id: Any) -> Any:
            monkeypatch.setattr(outside, "record", look)
            found = msgspec.structs.replace(await look(run_id), holder=None)
            asyncio.get_running_loop().call_later(0.5, go_on.set)
            return found

        await app.start_as("r", works)
        await until(lambda: bool(running), "the step")
        monkeypatch.setattr(outside, "record", looked)
        await outside.jump("r", "long#1")
        assert await (await app.get("r")).result() == "done"
