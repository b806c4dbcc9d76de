"""Steps: what simulated workflows call. They tell the witness when their bodies begin and end.

A body finds the process that it runs in by itself; what it does is in its arguments.
"""

from __future__ import annotations

import asyncio
from typing import Any

import buoy
from simulator.process import here
from simulator.programs import RENAMED_STEPS, RETRIES


class Flaky(Exception):
    """A step failed, as the program says."""


class Hopeless(Exception):
    """A step failed in a way that another attempt cannot change."""


async def _work(id: str, takes_s: float, fails: int, given: Any = None) -> str:
    with here().body() as attempt:
        if takes_s:
            await asyncio.sleep(takes_s)
        if attempt <= fails:
            raise Flaky(f"{id} fails at attempt {attempt}")
        return id


work = buoy.step(name="work", retries=RETRIES, backoff=0.3)(_work)
# The same under the name that it has in the release that renames it.
labour = buoy.step(name=RENAMED_STEPS["work"], retries=RETRIES, backoff=0.3)(_work)


@buoy.step(retries=RETRIES, backoff=0.3)
def work_sync(id: str, fails: int, given: Any = None) -> str:
    with here().body() as attempt:
        if attempt <= fails:
            raise Flaky(f"{id} fails at attempt {attempt}")
        return id


@buoy.step(retries=1, backoff=0.2, timeout=1.0)
async def slow(id: str, takes_s: float, fails: int) -> str:
    with here().body() as attempt:
        if attempt <= fails:
            await asyncio.sleep(takes_s)
        return id


@buoy.step(retries=1, backoff=0.2)
async def undo(id: str, result: str) -> None:
    """Some cannot be undone at the first attempt, and those whose name ends with `x` not at all."""
    with here().body() as attempt:
        here().undoes(id, result)
        if id.endswith("x") or (id.endswith("3") and attempt == 1):
            raise Flaky(f"{id} cannot be undone at attempt {attempt}")


@buoy.step(retries=1, backoff=5.0)
async def undo_later(id: str, result: str) -> None:
    """As `undo`, with a back-off during which much can happen."""
    with here().body() as attempt:
        here().undoes(id, result)
        if attempt == 1:
            raise Flaky(f"{id} cannot be undone at attempt {attempt}")


@buoy.step(compensate=undo_later)
async def lease(id: str) -> str:
    """As `book`; to undo it takes long."""
    with here().body():
        return id


@buoy.step(retries=RETRIES, backoff=5.0)
async def stubborn(id: str, fails: int) -> str:
    """As `work`, with a back-off during which much can happen."""
    with here().body() as attempt:
        if attempt <= fails:
            raise Flaky(f"{id} fails at attempt {attempt}")
        return id


@buoy.step(retries=RETRIES, backoff=0.3, never_retry=Hopeless)
async def brittle(id: str) -> str:
    """As `work`, and not to be tried again."""
    with here().body():
        raise Hopeless(f"{id} fails for good")


@buoy.step(compensate=undo)
async def book(id: str) -> str:
    with here().body():
        return id


@buoy.step(compensate=undo)
async def reserve(id: str, takes_s: float) -> str:
    """As `book`, but several of them may end in any order."""
    with here().body():
        if takes_s:
            await asyncio.sleep(takes_s)
        return id


@buoy.step
async def deadly(id: str, kills: int, takes_s: float = 0.0) -> str:
    """Ends its process, so many times at most."""
    with here().body():
        if takes_s:
            await asyncio.sleep(takes_s)
        if here().dies(id, kills):
            await here().loop.create_future()
        return id


@buoy.step(queue="side", retries=RETRIES, backoff=0.3)
async def errand(id: str, takes_s: float) -> str:
    """Executed by a worker that serves its queue."""
    with here().body():
        if takes_s:
            await asyncio.sleep(takes_s)
        return id


@buoy.step
def extra(id: str) -> str:
    """Only the later release calls it."""
    with here().body():
        return id


def called_sync(id: str, fails: int = 0, given: Any = None) -> str:
    """For specs: a plain function."""
    with here().body() as attempt:
        if attempt <= fails:
            raise Flaky(f"{id} fails at attempt {attempt}")
        return id


async def called(id: str, takes_s: float = 0.0, given: Any = None) -> str:
    """For specs: a function that waits."""
    with here().body():
        if takes_s:
            await asyncio.sleep(takes_s)
        return id


async def called_deadly(id: str, kills: int, given: Any = None) -> str:
    """For specs: a function that ends its process, so many times at most."""
    with here().body():
        if here().dies(id, kills):
            await here().loop.create_future()
        return id
