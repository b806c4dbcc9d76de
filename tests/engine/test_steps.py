"""Steps: results, retries, time limits, refusals, and what a body may know about itself."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.log import events as e
from buoy.engine.run import step_attempt
from tests.patience import LOOK_S, PATIENCE_S, turns, wait_until

from .harness import (
    bodies_of,
    commits,
    log_of,
    opened,
    outcome_of,
    plant,
    renamed,
    result_of,
    store_at,
    types_of,
    until,
    until_event,
)
from .scripted_steps import WITNESS, flaky, never, threaded, work


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


class Order(msgspec.Struct):
    id: str
    lines: list[int]


@dataclass
class Receipt:
    order: Order
    total: int


async def failure_of(url: str, step: Any, *args: Any) -> tuple[buoy.StepFailed, list[e.Event]]:
    """How a step fails, as the workflow's code sees it, and the log."""
    seen: list[buoy.StepFailed] = []

    @buoy.workflow
    async def calls() -> str:
        try:
            await step.call(*args)
        except buoy.StepFailed as error:
            seen.append(error)
            return "failed"
        return "no failure"

    async with opened(url, calls) as app:
        assert await result_of(app, await app.start_as("run", calls)) == "failed"
        return seen[0], await log_of(app, "run")


# ---- results and arguments


@buoy.step
async def sell(order: Order, discount: int = 0) -> Receipt:
    return Receipt(order, sum(order.lines) - discount)


@buoy.step
def sell_in_thread(order: Order, *more: int, note: str = "", **named: int) -> Receipt:
    return Receipt(order, sum(order.lines) + sum(more) + sum(named.values()))


async def test_typed_arguments_and_results_arrive_typed(every_url: str) -> None:
    @buoy.workflow
    async def typed(order: Order) -> list[Any]:
        one = await sell(order, discount=1)
        two = await sell_in_thread.call(order, 1, 2, note="x", extra=4)
        return [type(one).__name__, one.order.id, one.total, type(two.order).__name__, two.total]

    async with opened(every_url, typed) as app:
        run = await app.start(typed, Order("o1", [5, 5]))
        assert await result_of(app, run) == ["Receipt", "o1", 9, "Order", 17]


async def test_a_body_gets_what_was_stored_and_not_the_callers_objects(url: str) -> None:
    got: list[list[int]] = []

    @buoy.step
    async def keep(values: list[int]) -> list[int]:
        got.append(values)
        values.append(99)
        return values

    @buoy.workflow
    async def mutates() -> list[list[int]]:
        mine = [1, 2]
        call = keep(mine)
        mine.append(3)
        found = await call
        return [mine, found]

    async with opened(url, mutates) as app:
        assert await result_of(app, await app.start(mutates)) == [[1, 2, 3], [1, 2, 99]]
    assert got == [[1, 2, 99]]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(object(), "NotJson"), (math.nan, "NotJson"), ({"deep": [math.inf]}, "NotJson"), ("x" * 1_100_000, "TooLarge")],
    ids=["an object", "nan", "infinity", "too large"],
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_result_that_cannot_be_stored_fails_the_step_at_once(
    value: Any, kind: str, in_thread: bool, url: str
) -> None:
    @buoy.step(retries=5, backoff="1ms", name="bad")
    async def bad() -> Any:
        return value

    @buoy.step(retries=5, backoff="1ms", name="bad")
    def bad_in_thread() -> Any:
        return value

    error, log = await failure_of(url, bad_in_thread if in_thread else bad)
    assert (error.type, error.attempts) == (kind, 1)
    assert "the result of step bad" in str(error)
    assert "retry_scheduled" not in [event.type for event in log]


async def test_a_result_unlike_its_annotation_fails_the_step(url: str) -> None:
    @buoy.step(retries=3, backoff="1ms")
    async def liar() -> int:
        return "seven"  # type: ignore[return-value]

    error, _ = await failure_of(url, liar)
    assert (error.type, error.attempts) == ("BadInput", 1)
    assert "Expected `int`, got `str`" in str(error)


async def test_an_argument_of_the_wrong_type_fails_the_step(url: str) -> None:
    error, _ = await failure_of(url, work, "name", "not a number")
    assert (error.type, error.attempts) == ("BadInput", 1)
    assert "Expected `int`, got `str`" in str(error)


@pytest.mark.parametrize(
    ("args", "kind"),
    [((), "BadInput"), (("a", 1, 2, 3), "BadInput"), ((object(),), "NotJson"), (("x" * 1_100_000,), "TooLarge")],
    ids=["missing", "too many", "not json", "too large"],
)
async def test_an_impossible_call_is_refused_where_it_is_made(args: tuple[Any, ...], kind: str, url: str) -> None:
    @buoy.workflow
    async def calls() -> str:
        try:
            await work(*args)
        except buoy.UserError as error:
            assert "step work" in str(error)
            return type(error).__name__
        return "no refusal"

    async with opened(url, calls) as app:
        assert await result_of(app, await app.start_as("run", calls)) == kind
        assert "step_started" not in await types_of(app, "run")


async def test_a_workflow_result_that_cannot_be_stored_fails_the_run(url: str) -> None:
    class Evil:
        def model_dump(self, mode: str) -> Any:
            raise RuntimeError("no form of mine")

    @buoy.workflow
    async def returns(what: str) -> Any:
        await work("first")
        return {"object": object(), "nan": math.nan, "evil": Evil(), "large": "x" * 1_100_000}[what]

    async with opened(url, returns) as app:
        kinds = {w: (await outcome_of(app, await app.start(returns, w))) for w in ("object", "nan", "evil", "large")}
    assert kinds == {
        "object": ("failed", "NotJson"),
        "nan": ("failed", "NotJson"),
        "evil": ("failed", "NotJson"),
        "large": ("failed", "TooLarge"),
    }


async def test_a_step_result_whose_own_form_fails_fails_the_step(url: str) -> None:
    class Evil:
        def model_dump(self, mode: str) -> Any:
            raise RuntimeError("no form of mine")

    @buoy.step
    async def evil() -> Any:
        return Evil()

    error, _ = await failure_of(url, evil)
    assert "no form of mine" in str(error)


# ---- failures and retries


async def test_workflow_code_sees_type_message_and_attempts_of_a_failure(url: str) -> None:
    error, log = await failure_of(url, flaky, "a", 9)
    assert (error.type, error.attempts, error.step) == ("ConnectionError", 3, "flaky#1")
    assert "attempt 3" in str(error)
    attempts = [(event.type, event.body.attempt) for event in log if hasattr(event.body, "attempt")]
    assert attempts == [
        ("step_started", 1),
        ("retry_scheduled", 1),
        ("step_started", 2),
        ("retry_scheduled", 2),
        ("step_started", 3),
        ("step_failed", 3),
    ]


async def test_a_failure_that_nobody_catches_fails_the_run_under_its_own_name(url: str) -> None:
    @buoy.workflow
    async def calls() -> int:
        return await flaky("a", 9)

    async with opened(url, calls) as app:
        run = await app.start(calls)
        assert await outcome_of(app, run) == ("failed", "ConnectionError")
        assert (await run.document()).error.message == "flaky#1 failed: attempt 3"


async def test_the_back_off_grows_and_is_kept_in_the_log(url: str) -> None:
    @buoy.step(retries=3, backoff="10ms", backoff_factor=3.0, backoff_max="50ms")
    async def poor() -> int:
        raise OSError("poor")

    _, log = await failure_of(url, poor)
    waits = [event.body.due_at - event.at for event in log if isinstance(event.body, e.RetryScheduled)]
    assert waits == pytest.approx([0.01, 0.03, 0.05], abs=0.005)
    started = [event.at for event in log if isinstance(event.body, e.StepStarted)]
    due = [event.body.due_at for event in log if isinstance(event.body, e.RetryScheduled)]
    assert all(at >= promised for at, promised in zip(started[1:], due, strict=True))


async def test_an_error_that_must_never_be_retried_is_not(url: str) -> None:
    @buoy.step(retries=5, backoff="1ms", never_retry=(KeyError,))
    async def picky() -> int:
        raise KeyError("no")

    error, _ = await failure_of(url, picky)
    assert (error.type, error.attempts) == ("KeyError", 1)


async def test_a_crash_during_a_retry_repeats_the_same_attempt(url: str, tmp_path: Any) -> None:
    """Every cut of the log of a retried step: the attempts of the body continue where the log ends."""

    @buoy.workflow
    async def calls() -> int:
        return await flaky("a", 3)

    async with opened(url, calls) as app:
        assert await result_of(app, await app.start_as("original", calls)) == 3
        groups = commits(await log_of(app, "original"))
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for count in range(1, len(groups)):
            piece = [event for group in groups[:count] for event in group]
            await plant(store, f"copy{count}x", renamed(piece, "original", f"copy{count}x"))
    async with opened(second, calls) as app:
        for count in range(1, len(groups)):
            assert await result_of(app, await app.get(f"copy{count}x")) == 3
            last = groups[count - 1][-1].body
            first = WITNESS.attempts(f"copy{count}x", "flaky#1")
            if isinstance(last, e.StepStarted):
                assert first[0] == last.attempt
            elif isinstance(last, e.RetryScheduled):
                assert first[0] == last.attempt + 1
            assert first == sorted(set(first))


async def test_a_back_off_does_not_start_anew_after_a_restart(url: str) -> None:
    @buoy.step(retries=1, backoff="400ms")
    async def once() -> int:
        if buoy.info().attempt == 1:
            raise OSError("first")
        return 2

    @buoy.workflow
    async def calls() -> int:
        return await once()

    async with opened(url, calls) as app:
        await app.start_as("run", calls)
        await until_event(app, "run", "retry_scheduled")
    async with opened(url, calls) as app:
        assert await result_of(app, await app.get("run")) == 2
        scheduled = await bodies_of(app, "run", e.RetryScheduled)
        starts = [event.at for event in await log_of(app, "run") if isinstance(event.body, e.StepStarted)]
    assert len(scheduled) == 1
    assert starts[1] == pytest.approx(scheduled[0].due_at, abs=1.5)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error has no text")


class OwnBase(BaseException):
    pass


@pytest.mark.parametrize(
    ("raised", "kinds"),
    [
        (SystemExit(3), {"SystemExit", "RuntimeError"}),
        (KeyboardInterrupt(), {"KeyboardInterrupt", "RuntimeError"}),
        (OwnBase("own"), {"OwnBase"}),
        (asyncio.CancelledError(), {"CancelledError"}),
        (Unspeakable(), {"Unspeakable"}),
        (StopIteration(), {"RuntimeError", "StopIteration"}),
        (ExceptionGroup("two", [ValueError(1), OSError(2)]), {"ExceptionGroup"}),
        (TimeoutError("own"), {"TimeoutError"}),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, BaseException) else "",
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_whatever_a_step_raises_is_its_failure(
    raised: BaseException, kinds: set[str], in_thread: bool, url: str
) -> None:
    @buoy.step(name="raises")
    async def raises() -> int:
        raise raised

    @buoy.step(name="raises")
    def raises_in_thread() -> int:
        raise raised

    error, _ = await failure_of(url, raises_in_thread if in_thread else raises)
    assert error.type in kinds


async def test_a_step_that_exits_does_not_end_the_process(url: str) -> None:
    @buoy.step
    async def leaves() -> int:
        sys.exit(7)

    @buoy.workflow
    async def both() -> list[Any]:
        found = await asyncio.gather(leaves(), work("other", 5), return_exceptions=True)
        return [type(found[0]).__name__, found[1]]

    async with opened(url, both) as app:
        assert await result_of(app, await app.start(both)) == ["StepFailed", 5]


# ---- time limits


async def test_an_async_step_that_takes_too_long_is_cancelled_and_tried_again(url: str) -> None:
    cleaned = []

    @buoy.step(timeout="20ms", retries=1, backoff="1ms")
    async def slow() -> int:
        if buoy.info().attempt == 2:
            return 2
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(buoy.info().attempt)
        return 1

    @buoy.workflow
    async def calls() -> int:
        return await slow()

    async with opened(url, calls) as app:
        assert await result_of(app, await app.start_as("run", calls)) == 2
        (retry,) = await bodies_of(app, "run", e.RetryScheduled)
    assert cleaned == [1]
    assert (retry.error.type, retry.error.message) == (
        "TimeoutError",
        "step slow took longer than its timeout of 0.02 s",
    )


async def test_a_time_limit_is_not_taken_for_an_error_of_the_step_itself(url: str) -> None:
    @buoy.step(timeout="10s")
    async def own() -> int:
        raise TimeoutError("my own")

    error, _ = await failure_of(url, own)
    assert "my own" in str(error)


async def test_a_sync_step_that_takes_too_long_is_tried_again_only_when_its_thread_has_ended(url: str) -> None:
    let_go, timed_out = threading.Event(), threading.Event()
    at_once: list[int] = []
    inside = 0

    # On a busy machine even an attempt that ends at once may come too late.
    @buoy.step(timeout="20ms", retries=50, backoff="1ms")
    def stuck() -> int:
        nonlocal inside
        inside += 1
        at_once.append(inside)
        attempt = buoy.info().attempt or 0
        if attempt == 1:
            wait_until(buoy.abandoned, "the limit")
            timed_out.set()
            let_go.wait(PATIENCE_S)
        inside -= 1
        return attempt

    @buoy.workflow
    async def calls() -> int:
        return await stuck.call()

    async with opened(url, calls) as app:
        run = await app.start_as("run", calls)
        await until(timed_out.is_set)
        # After its limit: the second attempt must not have begun while the first one's thread is alive.
        await turns()
        assert await types_of(app, "run") == ["workflow_created", "claimed", "step_started"]
        let_go.set()
        attempts = await result_of(app, run)
    assert attempts >= 2
    assert at_once == [1] * attempts


async def test_the_late_result_of_a_sync_step_is_dropped(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_attempt, "THREAD_END_MAX_S", 0.02)
    let_go = threading.Event()

    @buoy.step(timeout="20ms")
    def stuck() -> str:
        let_go.wait(PATIENCE_S)
        return "too late"

    @buoy.workflow
    async def calls() -> list[str]:
        try:
            return [await stuck.call()]
        except buoy.StepFailed as error:
            return [error.type, await buoy.wait_signal("go")]

    async with opened(url, calls) as app:
        run = await app.start_as("run", calls)
        await until_event(app, "run", "signal_waited")
        let_go.set()
        await run.signal("go", "on")
        assert await result_of(app, run) == ["TimeoutError", "on"]
        assert "step_completed" not in await types_of(app, "run")


async def test_a_cancelled_sync_step_can_see_that_nobody_waits_for_it(url: str) -> None:
    began, seen = threading.Event(), threading.Event()

    @buoy.step
    def patient() -> int:
        began.set()
        while not buoy.abandoned():
            threading.Event().wait(LOOK_S)
        seen.set()
        return 1

    @buoy.step
    def until_it_began() -> bool:
        return began.wait(PATIENCE_S)

    @buoy.workflow
    async def calls() -> str:
        task = asyncio.ensure_future(patient.call())
        # A time-out could come before the body begins: then nothing would ever see that it is over.
        assert await until_it_began.call()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "given up"
        return "?"

    async with opened(url, calls) as app:
        assert await result_of(app, await app.start_as("run", calls)) == "given up"
        await until(seen.is_set)
        assert (await types_of(app, "run")).count("step_completed") == 1  # of the other step


# ---- what a body knows


async def test_the_idempotency_key_is_the_same_for_every_attempt_and_after_restarts(url: str) -> None:
    keys: list[str] = []
    crash = asyncio.Event()

    @buoy.step(retries=3, backoff="1ms")
    async def pays() -> int:
        keys.append(buoy.idempotency_key())
        if len(keys) < 3:
            raise OSError("again")
        if len(keys) == 3:
            crash.set()
            await asyncio.get_running_loop().create_future()
        return len(keys)

    @buoy.workflow
    async def calls() -> int:
        return await pays()

    quick = buoy.RunnerOptions(stop_grace_s=0.05)
    async with opened(url, calls, options=quick) as app:
        await app.start_as("run", calls)
        await crash.wait()
        log = await log_of(app, "run")
    second = url.replace("runs.db", "second.db")
    async with store_at(second) as store:
        await plant(store, "run", log)
    async with opened(second, calls) as app:
        assert await result_of(app, await app.get("run")) == 4
    assert set(keys) == {"run/pays#1/0"}
    assert len(keys) == 4


async def test_keys_differ_between_calls_and_runs(url: str) -> None:
    keys: list[str] = []

    @buoy.step
    async def notes() -> None:
        keys.append(buoy.idempotency_key())

    @buoy.workflow
    async def calls() -> None:
        async def leg() -> None:
            await notes()

        await notes()
        await asyncio.gather(leg(), leg(), notes())

    async with opened(url, calls) as app:
        await asyncio.gather(*[(await app.start_as(f"run{n}", calls)).result() for n in range(3)])
    assert len(keys) == len(set(keys)) == 12
    assert {"run0/notes#1/0", "run0/notes#2/0", "run0/1/notes#1/0", "run0/2/notes#1/0"} <= set(keys)


async def test_progress_is_told_from_async_and_sync_steps(url: str) -> None:
    go, told = threading.Event(), threading.Event()

    @buoy.step
    def reads(name: str) -> str:
        buoy.progress(3, 10, "reading" * 200)
        told.set()
        go.wait(PATIENCE_S)
        return name

    @buoy.workflow
    async def calls() -> str:
        return await reads.call("x")

    async with opened(url, calls) as app:
        run = await app.start_as("run", calls)
        await until(told.is_set)
        assert app.runner is not None
        shown = app.runner.progress["run"]
        assert (shown.done, shown.total, shown.leaf, len(shown.note)) == (3, 10, "reads#1", 500)
        go.set()
        assert await result_of(app, run) == "x"
        assert "run" not in app.runner.progress


async def test_info_tells_where_the_code_stands(url: str) -> None:
    @buoy.step
    async def tells() -> list[Any]:
        info = buoy.info()
        return [info.run_id, info.step, info.leaf, info.attempt, info.key]

    @buoy.workflow
    async def calls() -> list[Any]:
        outside = buoy.info()
        return [outside.run_id, outside.step, await tells()]

    async with opened(url, calls) as app:
        found = await result_of(app, await app.start_as("run", calls))
    assert found == ["run", None, ["run", "tells", "tells#1", 1, "run/tells#1/0"]]


# ---- where steps can be called


async def test_outside_of_workflows_a_step_is_a_plain_call() -> None:
    assert await sell(Order("o", [1, 2])) == Receipt(Order("o", [1, 2]), 3)
    assert sell_in_thread(Order("o", [1]), 2) == Receipt(Order("o", [1]), 3)
    assert await sell_in_thread.call(Order("o", [1]), 2) == Receipt(Order("o", [1]), 3)
    assert list(await buoy.gather(sell(Order("o", [1])), sell(Order("o", [2])))) != []
    buoy.progress(1, 2)
    assert not buoy.abandoned()
    with pytest.raises(buoy.NotAllowedHere, match="no workflow is running here"):
        buoy.ask("Who?")
    with pytest.raises(buoy.NotAllowedHere, match="workflows and steps only"):
        buoy.info()


async def test_a_sync_step_called_plainly_in_an_async_workflow_is_refused_with_advice(url: str) -> None:
    @buoy.workflow
    async def calls() -> str:
        try:
            threaded("x")
        except buoy.NotAllowedHere as error:
            return str(error)
        return "?"

    async with opened(url, calls) as app:
        assert "write `await threaded.call(...)`" in await result_of(app, await app.start(calls))


async def test_a_step_called_inside_a_step_is_a_plain_call(url: str) -> None:
    @buoy.step
    async def outer() -> int:
        return await work.fn("inner", 1) if False else await _plain_twice(3)

    @buoy.workflow
    async def calls() -> int:
        return await outer()

    async with opened(url, calls) as app:
        assert await result_of(app, await app.start_as("run", calls)) == 12
        assert [body.leaf for body in await bodies_of(app, "run", e.StepStarted)] == ["outer#1"]


@buoy.step
async def _plain(x: int) -> int:
    return 2 * x


@buoy.step
async def _plain_twice(x: int) -> int:
    return sum(await asyncio.gather(_plain(x), _plain(x)))


async def test_waits_inside_a_step_are_refused(url: str) -> None:
    @buoy.step
    async def asks(how: str) -> str:
        try:
            {"ask": lambda: buoy.ask("x"), "signal": lambda: buoy.wait_signal("x"), "sleep": lambda: buoy.sleep(1)}[
                how
            ]()
        except buoy.NotAllowedHere as error:
            return str(error)
        return "?"

    @buoy.workflow
    async def calls() -> list[str]:
        return [await asks(how) for how in ("ask", "signal", "sleep")]

    async with opened(url, calls) as app:
        for text in await result_of(app, await app.start(calls)):
            assert "this is step asks" in text
            assert "call it from the workflow" in text


async def test_a_call_that_was_not_awaited_is_noticed_when_it_is_used(url: str) -> None:
    @buoy.workflow
    async def forgets() -> str:
        try:
            if work("x"):
                return "?"
        except buoy.NotAllowedHere as error:
            return str(error)
        return "?"

    async with opened(url, forgets) as app:
        run = await app.start_as("run", forgets)
        assert "step work was not awaited; write `await` before it" in await result_of(app, run)


async def test_a_call_awaited_twice_is_refused(url: str) -> None:
    @buoy.workflow
    async def twice() -> str:
        call = work("x", 1)
        await call
        try:
            await call
        except RuntimeError as error:
            return str(error)
        return "?"

    async with opened(url, twice) as app:
        assert "was awaited twice" in await result_of(app, await app.start(twice))


async def test_a_body_starts_only_after_its_start_is_durable(every_url: str) -> None:
    """The witness of law 11: at its first line a body finds its own `step_started` in the store."""
    found: list[bool] = []
    apps: list[Any] = []

    @buoy.step
    async def looks() -> int:
        leaves = [body.leaf for body in await bodies_of(apps[0], buoy.info().run_id, e.StepStarted)]
        found.append(buoy.info().leaf in leaves)
        return 1

    @buoy.workflow
    async def calls() -> int:
        await looks()
        return sum(await asyncio.gather(*(looks() for _ in range(10))))

    async with opened(every_url, calls) as app:
        apps.append(app)
        assert await result_of(app, await app.start(calls)) == 10
    assert found == [True] * 11


async def test_a_step_left_behind_by_an_ended_run_is_cancelled(url: str) -> None:
    @buoy.workflow
    async def leaves() -> str:
        task = asyncio.create_task(never("left"))
        await work("first")
        return "done" if not task.done() else "?"

    async with opened(url, leaves) as app:
        assert await result_of(app, await app.start(leaves)) == "done"
        await until(lambda: not [task for task in asyncio.all_tasks() if "never" in repr(task.get_coro())])
