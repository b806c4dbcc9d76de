"""The code watch: what workflow code does that it should not, with file and line.

It sees calls whose result a replay cannot repeat (the clock, chance), calls that block, and durable calls that the
code makes and never awaits.
How: a profiler, which Python calls for each built-in function, and a list of all durable calls.
"""

from __future__ import annotations

import datetime
import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from buoy.engine.authoring.calls import _Wait
from buoy.engine.authoring.step_calls import StepCall

_CLOCKS = frozenset({"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime"})
_DATES = frozenset({"now", "utcnow", "today"})
# Through these of Python's own modules a call to chance is still the caller's.
_CHANCE = frozenset({"random", "uuid", "secrets"})
_GLOBAL_RANDOM: random.Random = vars(random)["_inst"]
_BLOCKS = vars(time)["sleep"]

Call = StepCall[Any] | _Wait


class CodeWatch:
    """Everything that is seen of workflow code in one scenario."""

    def __init__(self, tell: Callable[..., None], now: Callable[[], float]) -> None:
        self._note = tell
        self._now = now
        self._seen: set[str] = set()
        self._calls: list[tuple[Call, str]] = []
        self._blocked_at = 0.0
        # Where sync code runs, only its own thread is held up.
        self._holds = "process"

    @contextmanager
    def profiled(self, *, sync: bool) -> Iterator[None]:
        """Workflow code runs inside."""
        # A profiler that is already active stays in place.
        if sys.getprofile() is not None:
            yield
            return
        # What the garbage collector calls in the middle of workflow code is not the workflow's doing.
        collects = gc.isenabled()
        gc.disable()
        self._holds = "thread" if sync else "process"
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)
            if collects:
                gc.enable()

    def _look(self, frame: FrameType, event: str, function: Any) -> None:
        """Called for each call of a built-in function while workflow code runs."""
        if function is _BLOCKS:
            self._look_at_sleep(frame, event)
        elif event == "c_call" and (what := _impure(function)) is not None:
            self._note_impure(frame, what)

    def _look_at_sleep(self, frame: FrameType, event: str) -> None:
        if event == "c_call":
            self._blocked_at = self._now()
        elif event == "c_return" and (caller := _users(frame)) is not None:
            took_s = self._now() - self._blocked_at
            self._note("blocked", text=f"time.sleep at {_place(caller)}", step=self._holds, took_s=took_s)

    def _note_impure(self, frame: FrameType, what: str) -> None:
        caller: FrameType | None = frame
        while caller is not None and caller.f_globals.get("__name__") in _CHANCE:
            caller = caller.f_back
        if caller is None or _foreign(caller):
            return
        text = f"{what} at {_place(caller)}"
        if text not in self._seen:
            self._seen.add(text)
            self._note("impure", text=text, step=what.partition(" ")[0], leaf=_line_of(caller))

    # ---- durable calls

    def made(self, call: Call) -> None:
        """Workflow code has made a call. It is kept, so that its end can be looked at."""
        caller = _users(sys._getframe(1))
        self._calls.append((call, "" if caller is None else _place(caller)))

    def note_forgotten(self) -> None:
        """At the end: the calls that no code ever awaited. One that a replay made again counts once."""
        awaited = {_identity(call) for call, _ in self._calls if call._iterator is not None}
        for call, place in self._calls:
            if (where := _identity(call)) not in awaited:
                awaited.add(where)
                self._note("forgotten", run=where[0], leaf=where[1], text=place)
                call._iterator = iter(())  # marked as started, so that Python does not warn
        self._calls.clear()


def call_patches(watch: CodeWatch) -> list[tuple[Any, str, Any]]:
    """Replaces the engine's own, so that the watch sees all durable calls."""
    patches = []
    for kind in (StepCall, _Wait):

        def init(call: Any, *given: Any, before: Any = kind.__init__) -> None:
            before(call, *given)
            watch.made(call)

        patches.append((kind, "__init__", init))
    return patches


def _identity(call: Call) -> tuple[str, str]:
    return str(call._context.run_id), str(call._leaf)


def _impure(function: Any) -> str | None:
    """What kind of thing that differs at every replay this built-in function gives, and its name."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if owner is _GLOBAL_RANDOM:
        return f"random random.{name}" if name in ("random", "getrandbits") else None
    if isinstance(owner, type) and issubclass(owner, datetime.date) and name in _DATES:
        return f"clock {owner.__name__}.{name}"
    module = getattr(function, "__module__", None)
    if module == "time" and name in _CLOCKS:
        return f"clock time.{name}"
    return "random os.urandom" if module == "posix" and name == "urandom" else None


def _users(frame: FrameType | None) -> FrameType | None:
    """The nearest caller that is the user's own code."""
    while frame is not None and _foreign(frame):
        frame = frame.f_back
    return frame


def _foreign(frame: FrameType) -> bool:
    """Code that is not the user's: Python's own, and ours."""
    head = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return head == "buoy" or (head in sys.stdlib_module_names and head != "__main__")


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _line_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_name}:{frame.f_lineno}"
