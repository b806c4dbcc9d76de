"""A run that ends every process that drives it, among good ones: they all end, and it is put apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.limits import POISON_CAP, SOLO_AFTER
from buoy.core.log import events as e
from buoy.engine.read_log import read_log
from tests.patience import wait_until

from .flows import one_step, poison
from .harness import CrashHarness

pytestmark = pytest.mark.slow
GOOD = 40


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CrashHarness]:
    made = CrashHarness(tmp_path)
    try:
        yield made
    finally:
        made.close()


async def start(url: str, where: str) -> None:
    async with buoy.connect(url) as client:
        for n in range(GOOD):
            await client.start_as(f"good{n}", one_step, 0.02)
        await client.start_as("bad", poison, where)


async def settled(url: str) -> tuple[bool, int]:
    """Whether the bad one is put apart, and how many of the good ones have ended."""
    async with buoy.connect(url) as client:
        pause = (await client.record("bad")).document.pause
        ended = [(await client.record(f"good{n}")).document.ended for n in range(GOOD)]
        return pause is not None and pause.reason == "poison", sum(ended)


async def log_of(url: str, run_id: str) -> list[e.Body]:
    async with buoy.connect(url) as client:
        return [event.body for event in await read_log(client.store, RunId(run_id))]


@pytest.mark.parametrize(("store", "where"), [("sqlite", "step"), ("sqlite", "code"), ("file", "step")])
def test_poison_is_found_and_harms_nobody_for_good(store: str, where: str, harness: CrashHarness) -> None:
    harness.url = harness.url_of(store)
    asyncio.run(start(harness.url, where))
    workers = 0
    while True:
        pid = harness.fork_worker()
        workers += 1
        gone = Path(f"/proc/{pid}")

        def over(gone: Path = gone) -> bool:
            return not gone.exists() or asyncio.run(settled(harness.url)) == (True, GOOD)

        wait_until(over, "the worker to die, or all to be settled")
        if gone.exists():
            break
        # The first claim of code that dies at once is never durable, so it may take one more.
        assert workers <= SOLO_AFTER + POISON_CAP + 2, "it keeps killing its workers"
    assert workers >= POISON_CAP
    log = asyncio.run(log_of(harness.url, "bad"))
    pause = next(body for body in log if isinstance(body, e.Paused))
    assert pause.reason == "poison"
    assert ("deadly" if where == "step" else "its own code") in (pause.detail or "")
    assert sum(isinstance(body, e.Claimed) and body.evidence.get("solo") is True for body in log) >= POISON_CAP
