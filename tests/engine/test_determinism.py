"""Determinism: code that differs from its log is found out and paused; what Buoy offers instead replays the same."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e
from buoy.core.log.codec import encode
from buoy.engine.run.mailbox import Reason
from buoy.ports.records import Message

from .harness import (
    log_of,
    opened,
    plant,
    replayed,
    result_of,
    store_at,
    types_of,
    until_event,
    until_status,
    without_end,
)
from .scripted_steps import WITNESS, after, never, work


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


Code = Callable[..., Coroutine[Any, Any, Any]]


def as_version(code: Code) -> buoy.Workflow[..., Any]:
    """One name for all: the hash of the source tells the versions apart."""
    return buoy.workflow(name="changing")(code)


async def begun_by(url: str, code: Code, run_id: str = "run") -> None:
    """Starts a run that waits for the signal `go`, and stops."""
    workflow = as_version(code)
    async with opened(url, workflow) as app:
        await app.start_as(run_id, workflow)
        await until_status(app, run_id, "waiting_signal")


async def paused_by(url: str, code: Code, run_id: str = "run") -> Any:
    """Continues the run with other code, and returns the pause that follows."""
    async with opened(url, as_version(code)) as app:
        await app.signal(run_id, "go", "on")
        return (await until_status(app, run_id, "paused")).pause


async def finished_by(url: str, code: Code, run_id: str = "run") -> Any:
    async with opened(url, as_version(code)) as app:
        run = await app.get(run_id)
        if (await run.document()).pause is not None:
            await run.resume()
        else:
            await run.signal("go", "on")
        return await result_of(app, run)


# ---- the code is not a function of its log


@pytest.mark.parametrize(
    "chance",
    [lambda: random.randrange(10**12), lambda: time.time_ns(), lambda: uuid.uuid4().int % 10**12],
    ids=["random", "time", "uuid"],
)
async def test_chance_as_an_argument_is_found_out(chance: Callable[[], int], url: str) -> None:
    async def code() -> Any:
        found = await work("a", chance())
        await buoy.wait_signal("go")
        return found

    await begun_by(url, code)
    pause = await paused_by(url, code)
    assert pause.reason == "nondeterminism"
    assert "work#1 was called with" in pause.detail
    assert "and the code now calls it with" in pause.detail


async def test_chance_in_a_branch_is_found_out(url: str) -> None:
    turns = iter([True, False])

    async def code() -> Any:
        await (work("a") if next(turns) else after("b", "c"))
        await buoy.wait_signal("go")

    await begun_by(url, code)
    pause = await paused_by(url, code)
    assert pause.reason == "nondeterminism"
    assert "work#1" in pause.detail
    assert "after#1" in pause.detail


async def test_code_that_catches_everything_cannot_hide_a_difference(url: str) -> None:
    async def code() -> Any:
        try:
            await work("a", random.randrange(10**12))
        except Exception:
            return "hidden"
        return await buoy.wait_signal("go")

    await begun_by(url, code)
    assert (await paused_by(url, code)).reason == "nondeterminism"


async def test_a_difference_in_what_is_given_up_is_found_out(url: str) -> None:
    async def before() -> Any:
        task = asyncio.create_task(never("slow"))
        await work("a")
        task.cancel()
        return await buoy.wait_signal("go")

    async def afterwards() -> Any:
        task = asyncio.create_task(never("slow"))
        await work("a")
        await buoy.wait_signal("go")
        return await task

    await begun_by(url, before)
    pause = await paused_by(url, afterwards)
    assert pause.reason == "version"
    assert "never#1" in pause.detail
    assert await finished_by(url, before) == "on"


async def test_nothing_of_a_diverging_replay_is_recorded(url: str) -> None:
    async def code() -> Any:
        await work("a", random.randrange(10**12))
        await asyncio.gather(work("b"), work("c"))
        return await buoy.wait_signal("go")

    await begun_by(url, code)
    await paused_by(url, code)
    async with opened(url, as_version(code)) as app:
        log = await types_of(app, "run")
    begun = log.index("signal_waited")
    # The signal may be recorded for the leaf that waits for it, or be left in the inbox.
    assert [kind for kind in log[begun + 1 :] if kind != "signal_received"] == ["claimed", "paused"]
    assert max(WITNESS.of("run").values()) == 1


# ---- the code was changed


async def one_step() -> Any:
    found = await work("a", 1)
    await buoy.wait_signal("go")
    return [found, await work("end", 9)]


async def test_a_step_added_before_the_waiting_place_pauses_until_the_code_is_put_back(url: str) -> None:
    async def added() -> Any:
        await after("new", "x")
        found = await work("a", 1)
        await buoy.wait_signal("go")
        return [found, await work("end", 9)]

    await begun_by(url, one_step)
    pause = await paused_by(url, added)
    assert pause.reason == "version"
    assert "after#1" in pause.detail
    assert as_version(one_step).version in pause.detail
    assert as_version(added).version in pause.detail
    assert await finished_by(url, one_step) == [1, 9]
    assert WITNESS.of("run") == {"work#1": 1, "work#2": 1}


async def test_a_removed_step_pauses_until_the_code_is_put_back(url: str) -> None:
    async def removed() -> Any:
        await buoy.wait_signal("go")
        return [1, await work("end", 9)]

    await begun_by(url, one_step)
    pause = await paused_by(url, removed)
    assert pause.reason == "version"
    assert "work#1" in pause.detail
    assert await finished_by(url, one_step) == [1, 9]


async def test_a_renamed_step_pauses_and_both_names_are_said(url: str) -> None:
    @buoy.step(name="labour")
    async def labour(name: str, value: int = 0) -> int:
        return value

    async def renamed() -> Any:
        found = await labour("a", 1)
        await buoy.wait_signal("go")
        return [found, await work("end", 9)]

    await begun_by(url, one_step)
    pause = await paused_by(url, renamed)
    assert pause.reason == "version"
    assert "work#1" in pause.detail
    assert "labour#1" in pause.detail
    assert await finished_by(url, one_step) == [1, 9]


async def test_a_change_of_kind_pauses(url: str) -> None:
    @buoy.step(name="thing")
    async def thing() -> int:
        return 1

    async def step_first() -> Any:
        await thing()
        return await buoy.wait_signal("go")

    async def sleep_first() -> Any:
        await buoy.sleep(0)
        return await buoy.wait_signal("go")

    await begun_by(url, step_first)
    pause = await paused_by(url, sleep_first)
    assert pause.reason == "version"
    assert "thing#1" in pause.detail


async def test_a_changed_return_type_that_no_longer_fits_pauses(url: str) -> None:
    def with_type(kind: type) -> Code:
        async def one() -> Any:
            return 1

        one.__annotations__["return"] = kind
        typed = buoy.step(name="typed")(one)

        async def code() -> Any:
            await typed()
            return await buoy.wait_signal("go")

        return code

    await begun_by(url, with_type(int))
    pause = await paused_by(url, with_type(str))
    assert "typed#1" in pause.detail
    assert await finished_by(url, with_type(int)) == "on"


async def test_an_input_that_no_longer_fits_pauses_the_run_and_does_not_fail_it(url: str) -> None:
    @buoy.workflow(name="inputs")
    async def number(x: int) -> Any:
        return [x, await buoy.wait_signal("go")]

    @buoy.workflow(name="inputs")
    async def text(x: str) -> Any:
        return [x, await buoy.wait_signal("go")]

    async with opened(url, number) as app:
        await app.start_as("run", number, 5)
        await until_status(app, "run", "waiting_signal")
    async with opened(url, text) as app:
        await app.signal("run", "go", "on")
        state = await until_status(app, "run", "paused")
        assert state.pause.reason == "version"
    async with opened(url, number) as app:
        await app.resume("run")
        assert await result_of(app, await app.get("run")) == [5, "on"]


async def test_a_change_that_is_not_reached_yet_goes_on(url: str) -> None:
    async def more_at_the_end() -> Any:
        found = await work("a", 1)
        await buoy.wait_signal("go")
        more = await work("more", 5)
        return [found, more, await work("end", 9)]

    await begun_by(url, one_step)
    assert await finished_by(url, more_at_the_end) == [1, 5, 9]
    async with opened(url, as_version(more_at_the_end)) as app:
        assert "paused" not in await types_of(app, "run")


async def test_comments_and_layout_do_not_change_the_version() -> None:
    def made(body: Code) -> str:
        return as_version(body).version

    async def code() -> int:
        return await work("a", 1)

    plain = made(code)

    async def code() -> int:  # type: ignore[no-redef]
        # a comment
        return await work("a", 1)  # and another

    assert made(code) == plain

    async def code() -> int:  # type: ignore[no-redef]
        return await work("a", 2)

    assert made(code) != plain


async def test_a_paused_run_that_still_differs_is_paused_again(url: str) -> None:
    async def other() -> Any:
        await work("b", 2)
        return await buoy.wait_signal("go")

    await begun_by(url, one_step)
    await paused_by(url, other)
    async with opened(url, as_version(other)) as app:
        await app.resume("run")
        await until_event(app, "run", "paused", 2)
        assert (await until_status(app, "run", "paused")).pause.reason == "version"
    assert await finished_by(url, one_step) == [1, 9]


async def test_a_run_that_diverges_and_is_resumed_by_a_waiting_message_is_paused_again(url: str, tmp_path: Any) -> None:
    """The resume lies in the inbox already when the worker comes: its replay must begin from the whole log."""

    async def other() -> Any:
        await work("b", 2)
        return await buoy.wait_signal("go")

    await begun_by(url, one_step)
    async with buoy.connect(url) as client:
        for number, kind in enumerate(("pause", "resume")):
            await client.store.send(Message("run", kind, f"{kind}{number}", encode(Reason(None), "x")))
    async with opened(url, as_version(other)) as app:
        state = await until_status(app, "run", "paused")
        assert state.pause.reason == "version"
        assert "work#1 was called with" in state.pause.detail
        await app.signal("run", "go", "on")
    assert await finished_by(url, one_step) == [1, 9]
    assert WITNESS.of("run") == {"work#1": 1, "work#2": 1}


# ---- what replays the same


async def test_time_ids_and_chance_of_buoy_replay_the_same(url: str, tmp_path: Any) -> None:
    @buoy.workflow
    async def draws() -> list[Any]:
        async def leg() -> str:
            return f"{buoy.uuid()} {buoy.random().random()}"

        async def drawn() -> list[Any]:
            return [str(buoy.uuid()), buoy.random().randrange(10**9), buoy.now().isoformat()]

        before = await drawn()
        await work("a", buoy.random().randrange(10**9))
        between = await drawn()
        legs = await asyncio.gather(leg(), leg())
        await buoy.wait_signal("go")
        return [before, between, legs, await drawn()]

    async with opened(url, draws) as app:
        await app.start_as("run", draws)
        await until_status(app, "run", "waiting_signal")
        log = await log_of(app, "run")
    results = []
    for copy in ("one", "two"):
        second = f"sqlite:///{tmp_path}/{copy}.db"
        async with store_at(second) as store:
            await plant(store, "run", log)
        async with opened(second, draws) as app:
            await app.signal("run", "go")
            results.append(await result_of(app, await app.get("run")))
    first, second_one = results
    assert first[:3] == second_one[:3]
    flat = [first[0][0], first[1][0], first[3][0], first[0][1], first[1][1], *first[2]]
    assert len(set(flat)) == len(flat)


async def test_a_long_log_is_replayed_whole(url: str) -> None:
    @buoy.workflow
    async def long() -> int:
        total = 0
        for n in range(300):
            total += await work("n", n)
        return total

    async with opened(url, long) as app:
        assert await result_of(app, await app.start_as("run", long)) == sum(range(300))
        log = await log_of(app, "run")
    last = await replayed(long, without_end(log))
    assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted]


async def test_a_run_goes_to_the_runner_that_has_its_version_if_there_is_one(url: str) -> None:
    async def old() -> Any:
        await work("a", 1)
        await buoy.wait_signal("go")
        return "old"

    async def new() -> Any:
        await work("a", 1)
        await buoy.wait_signal("go")
        return "new"

    first = buoy.workflow(name="code")(old)
    second = buoy.workflow(name="code")(new)
    options = buoy.RunnerOptions(waiting_runs_max=0)
    async with (
        buoy.open(url, workflows=[second], options=options) as other,
        buoy.open(url, workflows=[first], options=options) as app,
    ):
        runs = [await app.start_as(f"r{number}", first) for number in range(4)]
        for run in runs:
            await until_status(app, run.id, "waiting_signal")
        for run in runs:
            await other.signal(run.id, "go")
        assert [await result_of(app, run) for run in runs] == ["old"] * 4
