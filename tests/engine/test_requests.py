"""Pause, resume and cancel: with an owner and without, in every status, against each other and against the end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.codec import encode
from buoy.engine.process.inboxes import InboxLoop
from buoy.engine.run.mailbox import Reason, Signal
from buoy.ports.records import Message
from tests.patience import PATIENCE_S

from .harness import (
    cuts,
    earlier,
    ended_leaves,
    log_of,
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
from .scripted_steps import WITNESS, after, never, work


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


@buoy.workflow
async def waits() -> Any:
    first = await work("first", 1)
    found = await buoy.wait_signal("go")
    return [first, found, await work("last", 2)]


@buoy.workflow
async def cleans() -> Any:
    try:
        return await buoy.wait_signal("go")
    except asyncio.CancelledError:
        await work("clean")
        raise


# ---- pause and resume


async def test_a_pause_during_a_step_lets_it_end_and_starts_nothing_new(url: str) -> None:
    @buoy.workflow
    async def two() -> int:
        return await after("one", "let", 1) + await work("two", 2)

    async with opened(url, two) as app:
        run = await app.start_as("run", two)
        await until(lambda: bool(WITNESS.ran))
        await run.pause("lunch")
        await until_event(app, "run", "paused")
        WITNESS.let_pass("run", {"let"})
        await until_event(app, "run", "step_completed")
        await until(lambda: _nobody_holds(app, "run"), "the owner to let go")
        assert (await state_of(app, "run")).status == "paused"
        assert [each.leaf for each in WITNESS.ran] == ["after#1"]
        with pytest.raises(buoy.WrongState, match="paused already"):
            await run.pause()
        await run.resume()
        assert await result_of(app, run) == 3
    assert WITNESS.of("run") == {"after#1": 1, "work#1": 1}


async def _nobody_holds(app: Any, run_id: str) -> bool:
    return (await app.record(run_id)).holder is None


async def test_a_resume_while_the_step_still_runs_does_not_run_it_twice(url: str) -> None:
    @buoy.workflow
    async def two() -> int:
        return await after("one", "let", 1) + await work("two", 2)

    async with opened(url, two) as app:
        run = await app.start_as("run", two)
        await until(lambda: bool(WITNESS.ran))
        await run.pause()
        await until_event(app, "run", "paused")
        await run.resume()
        await until_event(app, "run", "resumed")
        WITNESS.let_pass("run", {"let"})
        assert await result_of(app, run) == 3
    assert WITNESS.of("run") == {"after#1": 1, "work#1": 1}


@pytest.mark.parametrize("owner", [True, False], ids=["with an owner", "without an owner"])
async def test_a_waiting_run_is_paused_and_goes_on_when_resumed(owner: bool, any_url: str) -> None:
    async with opened(any_url, waits) as app:
        await app.start_as("run", waits)
        await until_status(app, "run", "waiting_signal")
        if owner:
            await app.pause("run")
            await until_status(app, "run", "paused")
    async with buoy.connect(any_url) as client:
        if not owner:
            done = await client.pause("run", "by hand")
            assert done.done
            assert "paused" in done.text
        await client.signal("run", "go", 7)
        assert (await client.state("run")).status == "paused"
    async with opened(any_url, waits) as app:
        # A worker that comes up does not unpause it.
        assert (await state_of(app, "run")).status == "paused"
        await app.resume("run")
        assert await result_of(app, await app.get("run")) == [1, 7, 2]
    assert WITNESS.of("run") == {"work#1": 1, "work#2": 1}


async def test_a_pending_run_can_be_paused_resumed_and_cancelled_without_any_worker(url: str) -> None:
    async with buoy.connect(url) as client:
        await client.start_as("one", waits)
        await client.start_as("two", waits)
        assert (await client.pause("one")).done
        assert (await client.state("one")).status == "paused"
        assert (await client.resume("one")).done
        assert (await client.cancel("two", "never mind")).done
        assert (await client.state("two")).status == "cancelled"
    async with opened(url, waits) as app:
        await until_status(app, "one", "waiting_signal")
        await app.signal("one", "go", 1)
        assert await result_of(app, await app.get("one")) == [1, 1, 2]


HOUR_S = 3600.0


@buoy.workflow
async def wakes() -> str:
    await buoy.sleep("10ms")
    return "awake"


async def test_a_timer_that_comes_due_during_a_pause_fires_after_it(url: str) -> None:
    @buoy.workflow
    async def naps() -> str:
        await asyncio.sleep(HOUR_S)
        return "woken"

    async with opened(url, naps) as app:
        run = await app.start_as("first", naps)
        await until_event(app, "first", "timer_started")
        await run.pause()
        await until_status(app, "first", "paused")
        log = await log_of(app, "first")
    async with store_at(url) as store:
        await plant(store, "run", earlier(renamed(log, "first", "run"), 2 * HOUR_S))
    async with opened(url, naps, wakes) as app:
        # Timers that are due do fire here.
        assert await result_of(app, await app.start(wakes)) == "awake"
        assert "timer_fired" not in await types_of(app, "run")
        await app.resume("run")
        assert await result_of(app, await app.get("run")) == "woken"


@pytest.mark.parametrize("how", ["pause", "stop"])
async def test_a_step_that_waits_for_its_thread_does_not_start_any_more(url: str, how: str) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    @buoy.step
    def slow(name: str) -> str:
        begun.append(name)
        assert go_on.wait(PATIENCE_S)
        return name

    @buoy.workflow
    async def both() -> list[str]:
        return list(await buoy.gather(slow.call("a"), slow.call("b")))

    @buoy.step
    def other() -> int:
        return 3

    @buoy.workflow
    async def next_in_turn() -> int:
        return await other.call()

    options = buoy.RunnerOptions(stop_grace_s=PATIENCE_S, step_threads=1)
    async with opened(url, both, next_in_turn, options=options) as app:
        run = await app.start_as("run", both)
        await until(lambda: bool(begun))
        if how == "pause":
            await run.pause()
            await until_status(app, "run", "paused")
            go_on.set()
            await until_event(app, "run", "step_completed")
            # The one thread takes what waits for it in order.
            assert await result_of(app, await app.start(next_in_turn)) == 3
            assert begun == ["a"]
            await run.resume()
            assert await result_of(app, run) == ["a", "b"]
        else:
            asyncio.get_running_loop().call_later(0.2, go_on.set)
    if how == "stop":
        assert begun == ["a"]
        async with opened(url, both) as app:
            assert await result_of(app, await app.get("run")) == ["a", "b"]
    assert begun == ["a", "b"]


async def test_a_retry_does_not_start_during_a_pause(url: str) -> None:
    tried = []

    @buoy.step(retries=5, backoff="1h")
    async def again() -> int:
        tried.append(buoy.info().attempt)
        if len(tried) == 1:
            raise OSError("once")
        return len(tried)

    @buoy.workflow
    async def calls() -> int:
        return await again()

    async with opened(url, calls) as app:
        run = await app.start_as("first", calls)
        await until_event(app, "first", "retry_scheduled")
        await run.pause()
        await until_status(app, "first", "paused")
        log = await log_of(app, "first")
    async with store_at(url) as store:
        await plant(store, "run", earlier(renamed(log, "first", "run"), 2 * HOUR_S))
    async with opened(url, calls, wakes) as app:
        assert await result_of(app, await app.start(wakes)) == "awake"
        assert tried == [1]
        await app.resume("run")
        assert await result_of(app, await app.get("run")) == 2
    assert tried == [1, 2]


async def test_outcomes_withheld_by_a_pause_replay_in_the_order_of_the_log(url: str) -> None:
    @buoy.workflow
    async def races() -> list[Any]:
        tasks = [asyncio.create_task(after("a", "let a", 1)), asyncio.create_task(after("b", "let b", 2))]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [sorted(task.result() for task in done), await work("then", 3)]

    async with opened(url, races) as app:
        run = await app.start_as("run", races)
        await until(lambda: len(WITNESS.ran) == 2)
        await run.pause()
        await until_event(app, "run", "paused")
        WITNESS.let_pass("run", {"let b"})
        await until_event(app, "run", "step_completed", 1)
        WITNESS.let_pass("run", {"let a"})
        await until_event(app, "run", "step_completed", 2)
        await run.resume()
        # Both had ended when the code continued, but it saw b first, alone.
        assert await result_of(app, run) == [[2], 3]
        log = await log_of(app, "run")
    last = await replayed(races, without_end(log))
    assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted]


# ---- cancel


async def test_a_cancelled_run_cleans_up_with_steps_and_ends_cancelled(any_url: str) -> None:
    async with opened(any_url, cleans) as app:
        run = await app.start_as("run", cleans)
        await until_status(app, "run", "waiting_signal")
        await run.cancel("too late")
        assert await outcome_of(app, run) == ("cancelled", None)
        assert (await run.document()).error.message == "too late"
        with pytest.raises(buoy.RunCancelled, match="too late"):
            await run.result()
        with pytest.raises(buoy.WrongState, match="cancelled already"):
            await run.cancel()
    assert WITNESS.of("run") == {"work#1": 1}


async def test_a_cancellation_goes_on_from_every_cut_of_its_log(url: str, tmp_path: Path) -> None:
    async with opened(url, cleans) as app:
        run = await app.start_as("original", cleans)
        await until_status(app, "original", "waiting_signal")
        await run.cancel()
        assert await outcome_of(app, run) == ("cancelled", None)
        log = await log_of(app, "original")
    pieces = [piece for piece in cuts(log) if any(isinstance(event.body, e.CancelRequested) for event in piece)]
    pieces.append(without_end(log))
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for number, piece in enumerate(pieces):
            await plant(store, f"copy{number}x", renamed(piece, "original", f"copy{number}x"))
    async with opened(second, cleans) as app:
        for number, piece in enumerate(pieces):
            assert await outcome_of(app, await app.get(f"copy{number}x")) == ("cancelled", None)
            assert not set(WITNESS.of(f"copy{number}x")) & ended_leaves(piece)


async def test_a_waiting_run_without_an_owner_is_cleaned_up_by_a_live_worker_that_knows_it(url: str) -> None:
    async with opened(url, cleans) as app:
        await app.start_as("run", cleans)
        await until_status(app, "run", "waiting_signal")
    async with opened(url, cleans) as app:
        await app.cancel("run")
        assert await outcome_of(app, await app.get("run")) == ("cancelled", None)
    assert WITNESS.of("run") == {"work#1": 1}


async def test_a_waiting_run_that_nobody_knows_is_cancelled_at_once(url: str) -> None:
    async with opened(url, cleans) as app:
        await app.start_as("run", cleans)
        await until_status(app, "run", "waiting_signal")
    async with buoy.connect(url) as client:
        assert (await client.cancel("run", "gone")).done
        assert (await client.state("run")).status == "cancelled"


async def test_a_running_run_is_cancelled_in_its_step(url: str) -> None:
    cleaned = []

    @buoy.step
    async def long() -> int:
        WITNESS.start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append("body")
        return 0

    @buoy.workflow
    async def calls() -> int:
        return await long()

    async with opened(url, calls) as app:
        run = await app.start_as("run", calls)
        await until(lambda: bool(WITNESS.ran))
        text = (await run.cancel()).text
        assert "drives the run and will handle it" in text
        assert await outcome_of(app, run) == ("cancelled", None)
        await until(lambda: cleaned == ["body"])
        assert (await types_of(app, "run"))[-3:] == ["cancel_requested", "leaf_cancelled", "workflow_cancelled"]


@pytest.mark.parametrize("owner", [True, False], ids=["with a worker", "without a worker"])
async def test_a_paused_run_can_be_cancelled(owner: bool, url: str) -> None:
    async with opened(url, cleans) as app:
        run = await app.start_as("run", cleans)
        await until_status(app, "run", "waiting_signal")
        await run.pause()
        await until_status(app, "run", "paused")
        await until(lambda: _nobody_holds(app, "run"))
        if owner:
            await run.cancel("enough")
            assert await outcome_of(app, run) == ("cancelled", None)
    if not owner:
        async with buoy.connect(url) as client:
            await client.cancel("run", "enough")
            assert (await client.state("run")).status == "cancelled"
    assert WITNESS.of("run") == ({"work#1": 1} if owner else {})


async def test_a_cancel_during_a_paused_step_waits_for_nothing(url: str) -> None:
    @buoy.workflow
    async def calls() -> int:
        try:
            return await never("long")
        finally:
            await work("clean")

    async with opened(url, calls) as app:
        run = await app.start_as("run", calls)
        await until(lambda: bool(WITNESS.ran))
        await run.pause()
        await until_event(app, "run", "paused")
        await run.cancel()
        assert await outcome_of(app, run) == ("cancelled", None)
    assert WITNESS.of("run") == {"never#1": 1, "work#1": 1}


async def test_a_cancellation_that_code_swallows_lets_the_run_complete(url: str) -> None:
    @buoy.workflow
    async def stubborn() -> Any:
        try:
            return await buoy.wait_signal("go")
        except asyncio.CancelledError:
            return ["completed all the same", await work("then", 1)]

    async with opened(url, stubborn) as app:
        run = await app.start_as("run", stubborn)
        await until_status(app, "run", "waiting_signal")
        await run.cancel()
        assert await outcome_of(app, run) == ("completed", ["completed all the same", 1])


async def test_a_second_cancel_changes_nothing(url: str) -> None:
    @buoy.workflow
    async def slowly() -> Any:
        try:
            return await buoy.wait_signal("go")
        finally:
            await after("clean", "let")

    async with opened(url, slowly) as app:
        run = await app.start_as("run", slowly)
        await until_status(app, "run", "waiting_signal")
        await run.cancel("one")
        await until(lambda: bool(WITNESS.ran))
        await run.cancel("two")
        await until_event(app, "run", "message_refused")
        WITNESS.let_pass("run", {"let"})
        assert await outcome_of(app, run) == ("cancelled", None)
        assert (await run.document()).error.message == "one"


async def test_code_cancels_its_own_run(url: str) -> None:
    @buoy.workflow
    async def declines(how: str) -> None:
        await work("first")
        if how == "root":
            raise buoy.Cancelled("declined")
        if how == "swallow":
            try:
                raise buoy.Cancelled("not swallowed by except Exception")
            except Exception:
                return

        async def leg() -> None:
            raise buoy.Cancelled("declined")

        if how == "gather":
            await asyncio.gather(leg(), never("other"))
        async with asyncio.TaskGroup() as group:
            group.create_task(leg())

    async with opened(url, declines) as app:
        for how in ("root", "swallow", "gather", "group"):
            run = await app.start_as(how, declines, how)
            assert await outcome_of(app, run) == ("cancelled", None), how
        assert (await (await app.get("root")).document()).error.message == "declined"


async def test_a_cancelled_error_that_nobody_asked_for_is_a_failure(url: str) -> None:
    @buoy.workflow
    async def strange() -> None:
        raise asyncio.CancelledError

    async with opened(url, strange) as app:
        assert await outcome_of(app, await app.start(strange)) == ("failed", "CancelledError")


async def test_cancel_and_completion_race_and_one_of_them_wins(url: str) -> None:
    async with opened(url, waits) as app:
        runs = [await app.start_as(f"run{n}", waits) for n in range(20)]
        for run in runs:
            await until_event(app, run.id, "signal_waited")

        async def race(run: Any) -> None:
            await asyncio.gather(run.signal("go", 1), run.cancel(), return_exceptions=True)

        await asyncio.gather(*(race(run) for run in runs))
        for run in runs:
            status, _ = await outcome_of(app, run)
            assert status in ("completed", "cancelled")
            endings = [kind for kind in await types_of(app, run.id) if kind.startswith("workflow_")][1:]
            assert endings == [f"workflow_{status}"]


async def test_requests_to_runs_that_do_not_allow_them_are_refused_and_change_nothing(url: str) -> None:
    async with opened(url, waits) as app:
        run = await app.start_as("run", waits)
        await until_status(app, "run", "waiting_signal")
        with pytest.raises(buoy.WrongState, match="not paused"):
            await run.resume()
        await run.signal("go", 1)
        await result_of(app, run)
        for request in (run.pause, run.resume, run.cancel):
            with pytest.raises(buoy.WrongState, match="completed already"):
                await request()
        with pytest.raises(buoy.UnknownRun, match="no run 'other'"):
            await app.pause("other")
        assert (await types_of(app, "run"))[-1] == "workflow_completed"


async def test_of_requests_that_the_owner_has_not_read_yet_the_last_one_holds(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @buoy.workflow
    async def two() -> int:
        return await after("one", "let", 1) + await work("two", 2)

    async def stands_still(_: InboxLoop) -> None:
        """Reads no message."""

    async with opened(any_url, two) as owner, buoy.connect(any_url) as client:
        run = await owner.start_as("run", two)
        await until(lambda: bool(WITNESS.ran))
        with monkeypatch.context() as patch:
            patch.setattr(InboxLoop, "read", stands_still)
            assert not (await client.pause("run")).done
            assert not (await client.resume("run")).done
            with pytest.raises(buoy.WrongState, match="not paused, it is running"):
                await client.resume("run")
        await until_event(owner, "run", "resumed")
        await client.pause("run")
        await until_event(owner, "run", "paused", count=2)
        with monkeypatch.context() as patch:
            patch.setattr(InboxLoop, "read", stands_still)
            assert not (await client.resume("run")).done
            assert not (await client.pause("run")).done
        await until_event(owner, "run", "paused", count=3)
        await client.resume("run")
        WITNESS.let_pass("run", {"let"})
        assert await result_of(owner, run) == 3


SEQUENCES = [
    "resume cancel",
    "pause resume cancel",
    "resume pause cancel",
    "resume go",
    "go resume",
    "pause go resume",
    "resume pause go",
    "resume pause resume go",
    "go pause",
    "go cancel",
    "cancel go",
    "cancel",
    "pause pause resume resume go",
    "other resume go",
    "resume cancel pause resume",
]


@pytest.mark.parametrize("before", ["waiting", "paused", "paused in a step"])
@pytest.mark.parametrize("sequence", SEQUENCES)
async def test_messages_that_came_while_nobody_was_there_are_taken_in_their_order(
    sequence: str, before: str, url: str, tmp_path: Path
) -> None:
    """A worker finds them all in the inbox when it takes the run over."""

    @buoy.workflow
    async def code() -> Any:
        try:
            found = await buoy.wait_signal("go")
            return [found, await after("last", "let", 2)]
        finally:
            await work("clean")

    async with opened(url, code, options=buoy.RunnerOptions(stop_grace_s=0.02)) as app:
        run = await app.start_as("run", code)
        await until_status(app, "run", "waiting_signal")
        if before == "paused in a step":
            await run.signal("go", 1)
            await until(lambda: bool(WITNESS.ran))
        if before != "waiting":
            await run.pause()
            await until_status(app, "run", "paused")
        log = await log_of(app, "run")
        old = await app.store.inbox(RunId("run"))
    WITNESS.clear()
    WITNESS.let_pass("run", {"let"})
    words = sequence.split()
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        await plant(store, "run", log, [*old, *(_message(word, number) for number, word in enumerate(words))])
    # All of them are taken before any step can end.
    paused, cancelled, gone = before != "waiting", False, before == "paused in a step" or "go" in words
    for word in words:
        cancelled = cancelled or word == "cancel"
        paused = word == "pause" or (paused and word not in ("resume", "cancel"))
    async with opened(second, code) as app:
        if paused:
            await until_status(app, "run", "paused")
            await app.resume("run")
        if not gone and not cancelled:
            await app.signal("run", "go", 1)
        status, _ = await outcome_of(app, await app.get("run"))
        assert status == ("cancelled" if cancelled else "completed")
    assert max(WITNESS.of("run").values()) == 1


def _message(word: str, number: int) -> Message:
    run = RunId("run")
    if word in ("go", "other"):
        return Message(run, "signal", f"signal:{number}", encode(Signal(word, encode(1, "x")), "x"))
    return Message(run, word, f"{word}:{number}", encode(Reason(None), "x"))


async def test_a_cancel_that_lets_a_paused_run_come_to_its_end_is_too_late(url: str) -> None:
    """While it was paused it got what it waited for; a cancel ends the pause first."""

    @buoy.workflow
    async def signalled() -> Any:
        return await buoy.wait_signal("go")

    async with opened(url, signalled) as app:
        await app.start_as("first", signalled)
        log = await until_event(app, "first", "signal_waited")
    run = RunId("later")
    messages = [
        Message(run, "pause", "p", encode(Reason(), "a pause")),
        Message(run, "signal", "s", encode(Signal("go", encode(7, "a payload")), "a signal")),
        Message(run, "cancel", "c", encode(Reason(), "a cancel")),
    ]
    async with store_at(url) as store:
        await plant(store, run, renamed(log, "first", "later"), messages)
    async with opened(url, signalled) as app:
        assert await result_of(app, await app.get("later")) == 7
        assert app.runner is not None and app.runner.troubles()[0] == 0
