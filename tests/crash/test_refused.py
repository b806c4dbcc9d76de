"""A worker whose disk became read-only: it can record nothing any more, and still ends at SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.engine.read_log import read_log
from tests.patience import PATIENCE_S, wait_until

from .flows import expected, job
from .gate import can_refuse_writes
from .harness import CrashHarness
from .verdict import Story, broken, recoveries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_refuse_writes(), reason="this kind of machine has other numbers for system calls"),
]


# So long that a run lasts until writes are refused, however busy the machine is.
SPAN_S = 1.0


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CrashHarness]:
    made = CrashHarness(tmp_path, told=True)
    try:
        yield made
    finally:
        made.close()


async def start(url: str) -> None:
    async with buoy.connect(url) as client:
        await client.start_as("run", job, 3, SPAN_S)


async def ended(url: str) -> Story:
    async with buoy.connect(url) as client, asyncio.timeout(PATIENCE_S):
        await (await client.get("run")).result()
        log = await read_log(client.store, RunId("run"))
    return Story(RunId("run"), "resume", expected(3), log, frozenset(), [], {})


@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_what_a_worker_could_not_record_is_done_by_the_next_one(store: str, harness: CrashHarness) -> None:
    """Killed, since it can do no good any more."""
    harness.url = harness.url_of(store)
    asyncio.run(start(harness.url))
    first = harness.worker()
    wait_until(lambda: len(harness.seen()) > 0, "the first step")
    os.kill(first.pid, signal.SIGUSR1)
    wait_until(lambda: any(each.what == "end" for each in harness.seen()), "the step to end")
    assert first.poll() is None, "a store that refuses is no reason to die"
    harness.kill(first.pid)
    harness.worker()
    story = asyncio.run(ended(harness.url))._replace(seen=harness.seen())
    assert broken(story) == []
    assert recoveries(story.log)["taken_over"] == 1


@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_sigterm_ends_a_worker_that_cannot_write(store: str, harness: CrashHarness) -> None:
    harness.url = harness.url_of(store)
    asyncio.run(start(harness.url))
    first = harness.worker(grace_s=0.5)
    wait_until(lambda: len(harness.seen()) > 0, "the first step")
    os.kill(first.pid, signal.SIGUSR1)
    wait_until(lambda: any(each.what == "end" for each in harness.seen()), "the step to end")
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0
    harness.killed_at[first.pid] = time.time()
    harness.worker()
    story = asyncio.run(ended(harness.url))._replace(seen=harness.seen())
    assert broken(story) == []
