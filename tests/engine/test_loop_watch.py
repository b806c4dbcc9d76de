"""A blocked event loop: its own process notices, says what blocks it, and tells the others by its heartbeat."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.engine.process.loop_watch import LoopWatch, in_words
from buoy.host.clock import SystemClock
from buoy.ports.records import LoopHeld, RunnerRecord
from tests.engine.harness import opened, store_at
from tests.patience import PATIENCE_S, until


class Block:
    """Holds the loop until another process's view of this runner shows it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: RunnerRecord | None = None

    def hold(self) -> None:
        """A blocking call: it returns when a reader of the store has seen that the loop is held."""
        done = threading.Event()

        def watch() -> None:
            try:
                self.seen = asyncio.run(self._wait())
            finally:
                done.set()

        threading.Thread(target=watch, daemon=True).start()
        done.wait(2 * PATIENCE_S)

    async def _wait(self) -> RunnerRecord:
        async with store_at(self.url) as store:
            found: list[RunnerRecord] = []

            async def held() -> bool:
                found.extend(each for each in await store.runners() if each.beat.loop_held is not None)
                return bool(found)

            await until(held, "a heartbeat that says that the loop is held")
            return found[0]


@pytest.mark.parametrize("where", ["step", "step after a wait", "workflow code"])
async def test_a_blocking_call_is_told_with_the_step_and_the_place(any_url: str, where: str) -> None:
    block = Block(any_url)
    notes: list[str] = []

    @buoy.step
    async def blocking() -> None:
        if where == "step after a wait":
            await asyncio.sleep(0)
        block.hold()

    @buoy.workflow
    async def blocked() -> None:
        if where == "workflow code":
            with _unguarded():
                block.hold()
        else:
            await blocking()

    async with opened(any_url, blocked) as app:
        assert app.runner is not None
        app.runner.trouble_log.on_note = app.runner.trouble_log.on_over = notes.append
        run = await app.start_as("blk", blocked)
        await run.result()
        assert block.seen is not None and block.seen.info.id == app.runner.id
        held = block.seen.beat.loop_held
        assert held is not None and held.run_id == "blk"
        assert held.leaf == (None if where == "workflow code" else "blocking#1")
        assert "test_loop_watch.py" in held.where and " in hold" in held.where
        text = next(each for each in notes if "has not turned" in each)
        assert "run blk" in text and ("blocking#1" in text) == (held.leaf is not None)
        await until(lambda: any("turns again" in each for each in notes), "the loop to turn again")
        assert app.runner.troubles() == (1, text)


async def test_workflow_code_of_a_run_that_another_process_started_is_named_as_what_blocks(any_url: str) -> None:
    """Its code begins with a replay, and not with a turn."""
    block = Block(any_url)

    @buoy.workflow
    async def blocked() -> None:
        with _unguarded():
            block.hold()

    async with buoy.connect(any_url) as client:
        run = await client.start_as("blk", blocked)
        async with opened(any_url, blocked):
            await run.result()
    held = block.seen.beat.loop_held if block.seen is not None else None
    assert held is not None and (held.run_id, held.leaf) == ("blk", None)


def _unguarded() -> Any:
    """Starting a thread counts as I/O, which workflow code may not do; here it stands for a blocking C call."""
    from buoy.engine.code.io_guard import unguarded

    return unguarded()


class _Idle:
    turning = None
    clock = SystemClock()

    def __init__(self) -> None:
        self.executions: dict[Any, Any] = {}


async def test_a_loop_that_turns_is_never_called_held(tmp_path: Path) -> None:
    told: list[str] = []
    watch = LoopWatch(_Idle(), told.append, told.append)
    watch.start()
    for _ in range(20):
        watch._turn()
        assert watch.look() is None
    watch.stop()
    assert told == []


async def test_a_process_that_was_suspended_as_a_whole_raises_no_alarm() -> None:
    """Neither its loop nor its looks moved: one look after the pause is not enough."""
    told: list[str] = []
    watch = LoopWatch(_Idle(), told.append, told.append)
    watch.start()
    watch.look()
    assert watch.look() is None and watch.look() is None
    watch._turn()
    assert watch.look() is None and told == []
    watch.stop()


def test_the_words_name_what_blocks() -> None:
    step = in_words(LoopHeld(5.0, "r", "pay#1", "x.py:3 in pay"))  # type: ignore[arg-type]
    assert "step pay#1 of run r" in step and "Make the step a plain `def`, or await in it" in step
    code = in_words(LoopHeld(5.0, "r", None, "x.py:3 in pay"))  # type: ignore[arg-type]
    assert "workflow code of run r" in code and "Put what takes long into a step" in code and "plain `def`" not in code
    assert "outside of any run" in in_words(LoopHeld(5.0))
