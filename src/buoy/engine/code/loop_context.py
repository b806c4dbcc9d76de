"""Loop context: while workflow code runs, asyncio in its thread is its private loop's, and I/O is refused.

Every outcome of every run comes by here, so it does as little as it can.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from buoy.engine.code.async_generators import FirstHook, leave_alone, tell_apart
from buoy.engine.code.io_guard import GUARD


def _set_of(*items: Iterable[Any]) -> Any:
    """Stands for `set` in asyncio's tasks, from the first workflow on, for as long as the process lives.

    `asyncio.as_completed` and `asyncio.wait` make a set of what they are given, and a set of coroutines goes by their
    addresses: another order at every replay. A dict keeps the order in which they were given. Workflow code gets one;
    every other thread, and every other code of this thread, gets a set. It asks for the flag of its thread because
    several runners may live in one process, each in a thread of its own.
    """
    return dict.fromkeys(*items) if items and GUARD.flag.on else set(*items)


_ASYNCIO_TASKS = vars(asyncio.tasks)


class RunningLoop:
    """Makes a private loop the running one, and puts everything back. A replay enters once for many outcomes."""

    __slots__ = ("_flag", "_loop", "_no_hooks", "_outer", "_was_guarded")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outer: asyncio.AbstractEventLoop | None = None
        self._was_guarded = self._no_hooks = False
        _ASYNCIO_TASKS["set"] = _set_of

    def __enter__(self) -> None:
        # Of the thread that enters.
        flag = self._flag = GUARD.flag
        self._outer = asyncio._get_running_loop()
        self._no_hooks = type(sys.get_asyncgen_hooks().firstiter) is not FirstHook and tell_apart()
        asyncio._set_running_loop(self._loop)
        self._was_guarded, flag.on = flag.on, True

    def __exit__(self, *_: object) -> None:
        self._flag.on = self._was_guarded
        if self._no_hooks:
            leave_alone()
        asyncio._set_running_loop(self._outer)
