"""A worker that stood still for so long that another machine gave it up: it wakes up, and may not write any more."""

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
from buoy.core.log import events as e
from buoy.engine.read_log import read_log
from tests.freeze import freeze
from tests.patience import PATIENCE_S, wait_until
from tests.postgres_server import fresh_url

from .flows import expected, job
from .harness import CrashHarness
from .verdict import Story, broken, in_witness_time

pytestmark = pytest.mark.slow
# So long that a run lasts until the zombie is stopped, however busy the machine is.
SPAN_S = 1.5
RUNS = [f"run{n}" for n in range(6)]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CrashHarness]:
    made = CrashHarness(tmp_path, told=True)
    try:
        yield made
    finally:
        made.close()


async def start(url: str) -> None:
    async with buoy.connect(url) as client:
        for n, run_id in enumerate(RUNS):
            await client.start_as(run_id, job, n, SPAN_S)


async def logs_at_the_end(url: str) -> dict[str, list[e.Event]]:
    async with buoy.connect(url) as client, asyncio.timeout(PATIENCE_S):
        for run_id in RUNS:
            await (await client.get(run_id)).result()
        return {run_id: await read_log(client.store, RunId(run_id)) for run_id in RUNS}


@pytest.mark.parametrize("store", ["sqlite", "file", "postgres"])
def test_one_that_wakes_up_after_it_was_given_up_is_fenced_and_stops(store: str, harness: CrashHarness) -> None:
    harness.url = fresh_url() if store == "postgres" else harness.url_of(store)
    asyncio.run(start(harness.url))
    zombie = harness.worker(host="harbour")
    wait_until(
        lambda: {each.run for each in harness.seen() if each.what == "start"} == set(RUNS), "all runs to be under way"
    )
    freeze(zombie.pid, harness.url)
    began = time.time()
    successor = harness.worker(host="open-sea")
    wait_until(
        lambda: (
            {each.run for each in harness.seen() if each.pid == successor.pid and each.what == "start"} == set(RUNS)
        ),
        "the other machine to take over",
    )
    woke = time.time()
    os.kill(zombie.pid, signal.SIGCONT)
    # It had steps under way, whose ends it wants to record; its beat is refused, and it ends by itself.
    assert zombie.wait(PATIENCE_S) == 1
    assert zombie.stdout is not None
    assert zombie.stdout.read().splitlines()[-1] == "gone, driving 0"
    logs = asyncio.run(logs_at_the_end(harness.url))
    seen = harness.seen()
    for n, run_id in enumerate(RUNS):
        told = [each for each in seen if each.run == run_id]
        slept = {zombie.pid: (began, woke)}
        log = in_witness_time(logs[run_id], told) if store == "postgres" else logs[run_id]
        story = Story(RunId(run_id), "resume", expected(n), log, frozenset(), told, slept)
        assert broken(story) == []
        claims = [event.body for event in logs[run_id] if isinstance(event.body, e.Claimed)]
        assert [claim.cause for claim in claims] == ["created", "taken_over"]
        assert claims[1].evidence["proof"] == "silent"
        assert claims[1].evidence["pid"] == zombie.pid
    late = [each for each in seen if each.pid == zombie.pid and each.what == "start" and each.at > woke]
    assert late == [], "it still drives the run"
