"""Sync workflows: plain functions that wait in a thread, leave it for longer waits, and are replayed from the start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.client.client import Run
from tests.patience import PATIENCE_S

from .harness import (
    PATIENT_STOP,
    cuts,
    ended_leaves,
    log_of,
    once_stopping,
    opened,
    outcome_of,
    plant,
    renamed,
    replayed,
    result_of,
    state_of,
    store_at,
    types_of,
    until,
    until_event,
    until_status,
    without_end,
)
from .scripted_steps import WITNESS, threaded


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


@buoy.step
def poor(name: str) -> int:
    WITNESS.start()
    raise ValueError(f"{name} is wrong")


@buoy.step(retries=2, backoff="1ms")
def shaky(name: str, good_from: int) -> int:
    WITNESS.start()
    if (buoy.info().attempt or 0) < good_from:
        raise ConnectionError(name)
    return good_from


@buoy.step
async def on_the_loop(value: int) -> int:
    WITNESS.start()
    return value


FORMS: dict[str, tuple[buoy.Workflow[..., Any], Any]] = {}


def form(expected: Any) -> Callable[[Callable[..., Any]], buoy.Workflow[..., Any]]:
    def keep(fn: Callable[..., Any]) -> buoy.Workflow[..., Any]:
        FORMS[fn.__name__] = (buoy.workflow(fn), expected)
        return FORMS[fn.__name__][0]

    return keep


@form([1, 2, 3])
def steps_run_one_after_the_other() -> list[int]:
    return [threaded("a", 1), threaded("b", 2), on_the_loop.call(3).result()]


@form([1, 2, 3, 10])
def gather_runs_steps_at_the_same_time() -> list[int]:
    found = buoy.gather(threaded.call("a", 1), on_the_loop.call(2), threaded.call("c", 3))
    return [*found, threaded("then", 10)]


@form(["ValueError", 2])
def a_failure_is_seen_at_the_call() -> list[Any]:
    try:
        poor("x")
    except buoy.StepFailed as error:
        return [error.type, threaded("then", 2)]
    return []


@form(["ValueError", 4])
def a_failure_in_a_gather_is_raised() -> list[Any]:
    try:
        buoy.gather(threaded.call("a", 1), poor.call("b"), threaded.call("c", 2))
    except buoy.StepFailed as error:
        return [error.type, threaded("then", 4)]
    return []


@form([2, 3])
def steps_are_retried() -> list[int]:
    return [shaky("a", 2), shaky("b", 3)]


@form([1, 2])
def sleeps_leave_the_thread() -> list[int]:
    one = threaded("a", 1)
    buoy.sleep("5ms")
    two = threaded("b", 2)
    buoy.sleep(0)
    return [one, two]


@form(["late", 3])
def a_signal_may_come_too_late() -> list[Any]:
    try:
        buoy.wait_signal("never", timeout="10ms")
    except TimeoutError:
        return ["late", threaded("a", 3)]
    return []


@form([0, 1, 4, 9])
def loops_and_generators_are_plain_python() -> list[int]:
    def squares() -> Any:
        for n in range(4):
            yield threaded("s", n * n)

    return list(squares())


@form(["body", "cleaned 7"])
def a_finally_runs_its_steps_once() -> list[str]:
    seen = []
    try:
        threaded("a")
        buoy.sleep("1ms")
        seen.append("body")
    finally:
        seen.append(f"cleaned {threaded('clean', 7)}")
    return seen


@pytest.mark.parametrize("name", FORMS)
async def test_a_sync_form_gives_its_result_from_every_cut_of_its_log(name: str, url: str, tmp_path: Path) -> None:
    workflow, expected = FORMS[name]
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.start_as("original", workflow)) == expected
        log = await log_of(app, "original")
    pieces = [log[:1], *cuts(log), without_end(log)]
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for number, piece in enumerate(pieces):
            await plant(store, f"copy{number}x", renamed(piece, "original", f"copy{number}x"))
    async with opened(second, workflow) as app:
        for number, piece in enumerate(pieces):
            run = f"copy{number}x"
            assert await result_of(app, Run(app, RunId(run))) == expected, f"cut after event {len(piece)}"
            assert not set(WITNESS.of(run)) & ended_leaves(piece), f"cut after event {len(piece)}"
            assert max(WITNESS.of(run).values(), default=0) <= 3


@pytest.mark.parametrize("name", FORMS)
async def test_the_replay_of_a_sync_form_asks_for_what_the_log_has_next(name: str, url: str) -> None:
    workflow, _ = FORMS[name]
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("original", workflow))
        log = await log_of(app, "original")
    for piece in cuts(log):
        # Its thread asks for the next call in a commit of its own, so a cut may lie between outcome and next call.
        claimed, *fresh = [(type(body), getattr(body, "leaf", None)) for body in await replayed(workflow, piece)]
        there = [(type(event.body), getattr(event.body, "leaf", None)) for event in log[len(piece) :]]
        assert claimed == (e.Claimed, None)
        assert fresh == there[: len(fresh)], f"cut after event {len(piece)}"
    last = await replayed(workflow, without_end(log))
    assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted]


# ---- waits


async def test_a_waiting_sync_workflow_holds_no_thread(url: str) -> None:
    @buoy.workflow
    def waits() -> Any:
        return buoy.wait_signal("go")

    options = buoy.RunnerOptions(workflow_threads=1, stop_grace_s=2)
    async with opened(url, waits, options=options) as app:
        runs = [await app.start_as(f"run{n}", waits) for n in range(5)]
        for run in runs:
            await until_status(app, run.id, "waiting_signal")
        for n, run in enumerate(runs):
            await run.signal("go", n)
        assert [await result_of(app, run) for run in runs] == [0, 1, 2, 3, 4]


async def test_questions_and_signals_reach_a_sync_workflow(url: str) -> None:
    @buoy.workflow
    def talks() -> list[Any]:
        name = buoy.ask("Who?")
        sure = buoy.ask("Sure?", kind="confirm")
        return [name, sure, buoy.wait_signal("go"), threaded("then", 5)]

    async with opened(url, talks) as app:
        run = await app.start_as("run", talks)
        await until_status(app, "run", "awaiting_input")
        await run.answer("Ann")
        await until_event(app, "run", "interaction_requested", 2)
        await run.signal("go", "early")
        await run.answer("yes")
        assert await result_of(app, run) == ["Ann", True, "early", 5]


async def test_a_finally_does_not_run_its_steps_when_the_code_only_waits(url: str) -> None:
    @buoy.workflow
    def cleans() -> str:
        try:
            return str(buoy.wait_signal("go"))
        finally:
            threaded("clean")

    async with opened(url, cleans) as app:
        run = await app.start_as("run", cleans)
        await until_status(app, "run", "waiting_signal")
        assert WITNESS.ran == []
        assert await types_of(app, "run") == ["workflow_created", "claimed", "signal_waited"]
        await run.signal("go", "x")
        assert await result_of(app, run) == "x"
    assert WITNESS.of("run") == {"threaded#1": 1}


async def test_a_finally_does_not_run_its_steps_when_the_run_is_given_back(url: str) -> None:
    inside, go = threading.Event(), threading.Event()

    @buoy.step
    def slow(name: str) -> int:
        WITNESS.start()
        inside.set()
        go.wait(PATIENCE_S)
        return 1

    @buoy.workflow
    def cleans() -> int:
        try:
            slow("a")
            return slow("b")
        finally:
            threaded("clean")

    async with opened(url, cleans, options=PATIENT_STOP) as app:
        await app.start_as("run", cleans)
        await until(inside.is_set)
        going = asyncio.ensure_future(once_stopping(app, "run", go.set))
    await going
    # Stopped in the middle of the first step: it ended, the code went no further.
    assert [each.leaf for each in WITNESS.ran] == ["slow#1"]
    async with opened(url, cleans) as app:
        assert await result_of(app, await app.get("run")) == 1
        log = await types_of(app, "run")
    assert log.count("interrupted") == 1
    assert WITNESS.of("run") == {"slow#1": 1, "slow#2": 1, "threaded#1": 1}


# ---- cancel and pause


async def test_a_cancelled_sync_workflow_sees_it_at_its_call_and_cleans_up(url: str) -> None:
    seen: list[str] = []

    @buoy.workflow
    def cleans() -> None:
        try:
            buoy.wait_signal("go")
        except buoy.Cancelled:
            seen.append("cancelled")
            raise
        finally:
            threaded("clean", 1)

    async with opened(url, cleans) as app:
        run = await app.start_as("run", cleans)
        await until_status(app, "run", "waiting_signal")
        await run.cancel("no longer needed")
        assert await outcome_of(app, run) == ("cancelled", None)
        assert (await state_of(app, "run")).error.message == "no longer needed"
    assert seen[-1] == "cancelled"
    assert WITNESS.of("run") == {"threaded#1": 1}


async def test_a_sync_workflow_is_cancelled_while_a_step_of_it_runs(url: str) -> None:
    inside, go = threading.Event(), threading.Event()

    @buoy.step
    def slow() -> int:
        inside.set()
        go.wait(PATIENCE_S)
        return 1

    @buoy.workflow
    def works() -> int:
        try:
            return slow()
        finally:
            threaded("clean")

    async with opened(url, works) as app:
        run = await app.start_as("run", works)
        await until(inside.is_set)
        await run.cancel()
        assert await outcome_of(app, run) == ("cancelled", None)
        go.set()
        assert "leaf_cancelled" in await types_of(app, "run")
    assert WITNESS.of("run") == {"threaded#1": 1}


async def test_a_sync_workflow_that_swallows_its_cancellation_completes(url: str) -> None:
    @buoy.workflow
    def stubborn() -> int:
        try:
            buoy.wait_signal("go")
        except buoy.Cancelled:
            return threaded("anyway", 3)
        return 0

    async with opened(url, stubborn) as app:
        run = await app.start_as("run", stubborn)
        await until_status(app, "run", "waiting_signal")
        await run.cancel()
        assert await outcome_of(app, run) == ("completed", 3)


async def test_a_crash_during_the_clean_up_of_a_cancelled_sync_workflow_goes_on_there(url: str, tmp_path: Path) -> None:
    @buoy.workflow
    def cleans() -> int:
        threaded("first")
        try:
            buoy.wait_signal("go")
        except buoy.Cancelled:
            return threaded("one", 1) + threaded("two", 2)
        return 0

    async with opened(url, cleans) as app:
        run = await app.start_as("original", cleans)
        await until_status(app, "original", "waiting_signal")
        await run.cancel()
        assert await outcome_of(app, run) == ("completed", 3)
        log = await log_of(app, "original")
    pieces = [piece for piece in cuts(log) if any(isinstance(event.body, e.CancelRequested) for event in piece)]
    assert len(pieces) >= 2
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for number, piece in enumerate(pieces):
            await plant(store, f"copy{number}x", renamed(piece, "original", f"copy{number}x"))
    async with opened(second, cleans) as app:
        for number, piece in enumerate(pieces):
            assert await outcome_of(app, await app.get(f"copy{number}x")) == ("completed", 3)
            assert not set(WITNESS.of(f"copy{number}x")) & ended_leaves(piece)


async def test_a_cancelled_sync_workflow_goes_on_from_its_detached_child(url: str, tmp_path: Path) -> None:
    """The cancellation came after that call: a replay must not see it there."""

    @buoy.workflow
    def kid() -> int:
        return 1

    @buoy.workflow
    def sends_off() -> int:
        buoy.start_child(kid)
        try:
            return threaded("between", 1) + int(buoy.wait_signal("go"))
        except buoy.Cancelled:
            return threaded("clean", 3)

    async with opened(url, sends_off, kid) as app:
        run = await app.start_as("original", sends_off)
        await until_status(app, "original", "waiting_signal")
        await run.cancel()
        assert await outcome_of(app, run) == ("completed", 3)
        log = await log_of(app, "original")
    pieces = [piece for piece in cuts(log) if any(isinstance(event.body, e.CancelRequested) for event in piece)]
    assert pieces
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for number, piece in enumerate(pieces):
            await plant(store, f"copy{number}x", renamed(piece, "original", f"copy{number}x"))
    async with opened(second, sends_off, kid) as app:
        for number in range(len(pieces)):
            assert await outcome_of(app, await app.get(f"copy{number}x")) == ("completed", 3)


@pytest.mark.parametrize("then", ["another step", "the end"])
async def test_a_pause_between_two_calls_of_sync_code_only_pauses(then: str, url: str) -> None:
    inside, go = threading.Event(), threading.Event()

    @buoy.workflow
    def thinks() -> int:
        found = threaded("first", 1)
        inside.set()
        go.wait(PATIENCE_S)
        return found + (threaded("second", 1) if then == "another step" else 1)

    async with opened(url, thinks) as app:
        run = await app.start_as("run", thinks)
        await until(inside.is_set)
        await run.pause()
        await until_event(app, "run", "paused")
        go.set()
        await until(lambda: _released(app, "run"), "the runner to let go of a paused run")
        assert (await state_of(app, "run")).status == "paused"
        await run.resume()
        assert await result_of(app, run) == 2
    assert WITNESS.of("run")["threaded#1"] == 1


async def _released(app: Any, run_id: str) -> bool:
    return (await app.record(run_id)).holder is None


async def test_a_cancellation_between_two_calls_of_sync_code_is_seen_at_the_next(url: str) -> None:
    inside, go = threading.Event(), threading.Event()

    @buoy.workflow
    def thinks() -> list[Any]:
        threaded("first")
        inside.set()
        go.wait(PATIENCE_S)
        try:
            threaded("second")
        except buoy.Cancelled:
            return ["seen", threaded("clean", 4)]
        return ["not seen"]

    async with opened(url, thinks) as app:
        run = await app.start_as("run", thinks)
        await until(inside.is_set)
        await run.cancel()
        await until_event(app, "run", "cancel_requested")
        go.set()
        assert await result_of(app, run) == ["seen", 4]
        log = await log_of(app, "run")
    last = await replayed(thinks, without_end(log))
    assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted]


# ---- divergence


async def test_sync_code_that_differs_from_its_log_is_paused(url: str) -> None:
    def version(step_name: str, value: int) -> buoy.Workflow[..., Any]:
        @buoy.step(name=step_name)
        def renamed_step(x: int) -> int:
            return x

        @buoy.workflow(name="changing")
        def changing() -> int:
            found = renamed_step(value)
            buoy.wait_signal("go")
            return found

        return changing

    async with opened(url, version("one", 1)) as app:
        await app.start_as("renamed", version("one", 1))
        await app.start_as("argument", version("one", 1))
        await until_status(app, "renamed", "waiting_signal")
        await until_status(app, "argument", "waiting_signal")
    async with opened(url, version("other", 1)) as app:
        await app.signal("renamed", "go")
        state = await until_status(app, "renamed", "paused")
        assert state.pause.reason == "nondeterminism"
        assert "one#1" in state.pause.detail
        assert "other#1" in state.pause.detail
    async with opened(url, version("one", 2)) as app:
        await app.signal("argument", "go")
        state = await until_status(app, "argument", "paused")
        assert '{"x":1}' in state.pause.detail
        assert '{"x":2}' in state.pause.detail
    async with opened(url, version("one", 1)) as app:
        for run_id in ("renamed", "argument"):
            await app.resume(run_id)
            assert await result_of(app, await app.get(run_id)) == 1


async def test_sync_code_that_catches_everything_cannot_hide_a_difference(url: str) -> None:
    def version(value: int) -> buoy.Workflow[..., Any]:
        @buoy.workflow(name="catching")
        def catching() -> str:
            try:
                threaded("x", value)
            except Exception:
                return "hidden"
            buoy.wait_signal("go")
            return "done"

        return catching

    async with opened(url, version(1)) as app:
        await app.start_as("run", version(1))
        await until_status(app, "run", "waiting_signal")
    async with opened(url, version(2)) as app:
        await app.signal("run", "go")
        await until_status(app, "run", "paused")


async def test_await_in_a_sync_workflow_is_refused_with_advice(url: str) -> None:
    @buoy.workflow
    def awaits() -> str:
        try:
            threaded.call("x").__await__()
        except buoy.NotAllowedHere as error:
            return str(error)
        return "?"

    async with opened(url, awaits) as app:
        assert "use buoy.gather(...) or .result()" in await result_of(app, await app.start(awaits))


async def test_gather_in_a_sync_workflow_takes_calls_only(url: str) -> None:
    @buoy.workflow
    def gathers() -> str:
        try:
            buoy.gather(threaded("x", 1), 2)
        except buoy.BadInput as error:
            return str(error)
        return "?"

    async with opened(url, gathers) as app:
        assert "buoy.gather(fetch.call(1), fetch.call(2))" in await result_of(app, await app.start(gathers))


async def test_whatever_sync_code_raises_fails_the_run(url: str) -> None:
    @buoy.workflow
    def raises(how: str) -> None:
        threaded("first")
        raise {"exit": SystemExit(2), "key": KeyboardInterrupt(), "value": ValueError("x")}[how]

    async with opened(url, raises) as app:
        ends = {how: await outcome_of(app, await app.start(raises, how)) for how in ("exit", "key", "value")}
    assert ends == {
        "exit": ("failed", "SystemExit"),
        "key": ("failed", "KeyboardInterrupt"),
        "value": ("failed", "ValueError"),
    }
