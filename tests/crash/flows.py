"""Workflows for the crash tests. Each body writes to the witness: one line, appended at once, outside of any store."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import buoy
from buoy.engine.authoring.definitions import Recovery
from tests.patience import LOOK_S

WITNESS = "BUOY_WITNESS"
# No run of a test takes so long, however often its worker is killed and its store is away.
LIMIT_S = 900.0


# Opened once for each process, so that it can still be written when the kernel lets the process open no more files.
_HANDLES: dict[tuple[int, str], int] = {}


def tell(what: str) -> None:
    """`time pid run leaf attempt key what`. One write with O_APPEND: lines of several processes never mix."""
    info = buoy.info()
    write(f"{info.run_id} {info.leaf} {info.attempt} {info.key} {what}")


def note(kind: str, run: str, value: object = "-") -> None:
    """What else a process has to say, in the same form: `kind` stands in the place of the leaf."""
    write(f"{run} {kind} 0 {value} note")


def write(text: str) -> None:
    handle = open_witness()
    os.write(handle, f"{time.time():.6f} {os.getpid()} {text}\n".encode())


def open_witness() -> int:
    place = (os.getpid(), os.environ[WITNESS])
    if place not in _HANDLES:
        _HANDLES[place] = os.open(place[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _HANDLES[place]


@buoy.step
async def tick(name: str, value: int, span_s: float = 0.0) -> int:
    tell("start")
    await asyncio.sleep(span_s)
    tell("end")
    return value


@buoy.step
def tock(name: str, value: int, span_s: float = 0.0) -> int:
    tell("start")
    time.sleep(span_s)
    tell("end")
    return value


@buoy.step(retries=3, backoff="5ms")
async def shaky(value: int) -> int:
    tell("start")
    if (buoy.info().attempt or 0) < 2:
        raise ConnectionError("first attempt")
    tell("end")
    return value


@buoy.workflow
async def job(n: int, span_s: float) -> list[int]:
    """Steps one after the other, side by side, in threads, tried again, after a sleep, within a limit."""
    one = await tick("one", n, span_s)
    two, three = await asyncio.gather(tick("two", n + 1, span_s), tock.call("three", n + 2, span_s))
    await asyncio.sleep(span_s)
    four = await shaky(n + 3)
    async with asyncio.timeout(LIMIT_S):
        five = await tick("five", n + 4, span_s)
    return [one, two, three, four, five]


@buoy.workflow
def sync_job(n: int, span_s: float) -> list[int]:
    """The same as a plain function."""
    one = tock("one", n, span_s)
    two, three = buoy.gather(tock.call("two", n + 1, span_s), tick.call("three", n + 2, span_s))
    buoy.sleep(span_s)
    four = tock("four", n + 3, span_s)
    return [one, two, three, four, tock("five", n + 4, span_s)]


@buoy.step
def wait_for(path: str) -> int:
    """Ends when there is a file of that name, in any process."""
    tell("start")
    while not Path(path).exists():
        time.sleep(LOOK_S)
    tell("end")
    return 1


@buoy.workflow
async def gated(path: str) -> int:
    return await wait_for.call(path)


@buoy.workflow
async def one_step(span_s: float) -> int:
    return await tock.call("long", 1, span_s)


@buoy.step
async def deadly() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@buoy.workflow
async def poison(where: str) -> str:
    """Ends whatever process drives it, from a step or from its own code."""
    if where == "code":
        os.kill(os.getpid(), signal.SIGKILL)
    await deadly()
    return "never"


async def voyage(n: int) -> list[int]:
    """Steps one after the other and side by side, a timer, a signal, a step in a thread, one that is tried again."""
    one = await tick("one", n, 0.002)
    two, three = await asyncio.gather(tick("two", n + 1, 0.004), tock.call("three", n + 2, 0.004))
    await buoy.sleep("2ms")
    more: int = await buoy.wait_signal("go")
    four = await shaky(n + 2 + more)
    return [one, two, three, four, await tick("five", n + 4)]


POLICIES: tuple[Recovery, ...] = ("resume", "restart", "fail", "hold")
VOYAGES = {policy: buoy.workflow(name=f"voyage_{policy}", recovery=policy)(voyage) for policy in POLICIES}

WORKFLOWS: tuple[buoy.Workflow[..., Any], ...] = (job, sync_job, one_step, gated, poison, *VOYAGES.values())


def expected(n: int) -> list[int]:
    return [n, n + 1, n + 2, n + 3, n + 4]
