"""Patience: how long tests wait for what must come, and how they wait.

A test waits for a condition, never for a time. The limits here only end a test that would hang. A machine that is busy
with other work does not reach them. They are shorter than pytest's own limit, so that a test says for what it waited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 150.0
# Between two looks at a condition.
LOOK_S = 0.005


async def until(holds: Callable[[], bool | Awaitable[bool]], what: str = "the condition") -> None:
    """Waits until something holds, on a loop that keeps running."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s in vain for {what}"
        await asyncio.sleep(LOOK_S)


def wait_until(holds: Callable[[], object], what: str = "the condition") -> None:
    """Waits in this thread until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s in vain for {what}"
        time.sleep(LOOK_S)


def cpu_s(work: Callable[[], object], times: int = 3) -> float:
    """The least processor time that this process needs for it: other processes do not make it longer. Compare two."""
    spans = []
    for _ in range(times):
        began = time.process_time()
        work()
        spans.append(time.process_time() - began)
    return min(spans)


async def turns(count: int = 20) -> None:
    """Lets the loop turn: whatever is ready to happen has happened afterwards."""
    for _ in range(count):
        await asyncio.sleep(0)
