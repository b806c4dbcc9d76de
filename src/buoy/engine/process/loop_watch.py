"""Loop watch: notices from another thread that the event loop of this process is blocked, and what blocks it.

A blocking call in an async step or in workflow code stops every run of the process. Heartbeats still look healthy,
because they have a thread of their own.
Invariant: the loop counts as blocked only after several checks without a turn. A process that was suspended as a whole
made no checks, so it raises no false alarm.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import FrameType
from typing import Protocol

from buoy.core.ids import RunId
from buoy.engine.code.async_decider import AsyncDecider
from buoy.engine.run.execution import Execution
from buoy.ports.host import Clock
from buoy.ports.records import LoopHeld

# How often the loop shows that it turns, and how many looks in a row, about a second apart, may miss that.
_TURN_S = 0.5
_LOOKS_MAX = 4
_FRAMES_MAX = 200
# Python's own limit of recursion, twice: the frames of the engine are the outer ones.
_STACK_MAX = 2 * 1000
_DECIDER = AsyncDecider.begin.__code__.co_filename
_NOT_USERS = (sysconfig.get_paths()["stdlib"], str(PurePath(__file__).parents[2]))


class Watched(Protocol):
    """The runner, as the watch over its loop sees it."""

    @property
    def executions(self) -> Mapping[RunId, Execution]: ...

    @property
    def turning(self) -> Execution | None: ...

    @property
    def clock(self) -> Clock: ...


class LoopWatch:
    """Watches one loop. `start` and `stop` are called on the loop, `look` in another thread."""

    def __init__(self, runner: Watched, on_held: Callable[[str], None], on_freed: Callable[[str], None]) -> None:
        self._runner = runner
        self._on_held = on_held
        self._on_freed = on_freed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turns = self._turns_seen = 0
        self._missed = 0
        self._since = 0.0
        self._held: LoopHeld | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop = None

    def _turn(self) -> None:
        self._turns += 1
        if self._loop is not None:
            self._timer = self._loop.call_later(_TURN_S, self._turn)

    def look(self) -> LoopHeld | None:
        """What blocks the loop, if it has not turned for several looks. Called about once a second."""
        loop, now = self._loop, self._runner.clock.monotonic()
        if loop is None or self._turns != self._turns_seen:
            self._turns_seen, self._missed, self._since = self._turns, 0, now
            if self._held is not None:
                self._held = None
                self._on_freed("the event loop turns again")
            return None
        self._missed += 1
        if self._missed < _LOOKS_MAX:
            return None
        for_s = round(now - self._since, 1)
        if self._held is None:
            self._held = self._holder(loop, for_s)
            self._on_held(in_words(self._held))
        else:
            self._held = LoopHeld(for_s, self._held.run_id, self._held.leaf, self._held.where)
        return self._held

    def _holder(self, loop: asyncio.AbstractEventLoop, for_s: float) -> LoopHeld:
        frame = sys._current_frames().get(getattr(loop, "_thread_id", None) or 0)
        where = _place(frame)
        if (run_id := _run_whose_code_is_in(frame)) is not None:
            return LoopHeld(for_s, run_id, None, where)
        turning = self._runner.turning
        if turning is not None:
            return LoopHeld(for_s, turning.run_id, None, where)
        task = asyncio.current_task(loop)
        for run_id, execution in list(self._runner.executions.items()):
            leaf = execution.leaves.carried_by(task)
            if leaf is not None:
                return LoopHeld(for_s, run_id, leaf, where)
        return LoopHeld(for_s, None, None, where)


def in_words(held: LoopHeld) -> str:
    """One line for the log of the process."""
    advice = "Make the step a plain `def`, or await in it"
    if held.leaf is not None:
        holder = f"step {held.leaf} of run {held.run_id}"
    elif held.run_id is not None:
        holder = f"the workflow code of run {held.run_id}"
        advice = "Put what takes long into a step, and let a loop await something"
    else:
        holder = "code outside of any run"
    return (
        f"the event loop has not turned for {held.for_s:g} s: {holder} blocks it at {held.where}; "
        f"no other run of this process moves. {advice}"
    )


def _run_whose_code_is_in(frame: FrameType | None) -> RunId | None:
    """The run whose workflow code is on that stack. The stack also shows a replay, which is no turn of the run."""
    for _ in range(_STACK_MAX):
        if frame is None:
            break
        if frame.f_code.co_filename == _DECIDER and isinstance(found := frame.f_locals.get("self"), AsyncDecider):
            return found.run_id
        frame = frame.f_back
    return None


def _place(frame: FrameType | None) -> str:
    """The innermost frame of the user's own code; else the innermost of all."""
    innermost = frame
    for _ in range(_FRAMES_MAX):
        if frame is None:
            break
        if not frame.f_code.co_filename.startswith(_NOT_USERS):
            return _line(frame)
        frame = frame.f_back
    return "an unknown place" if innermost is None else _line(innermost)


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
