"""Real processes, killed at real moments: every run ends, with the right result, and no recorded step is repeated."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.read_log import read_log
from tests.freeze import freeze
from tests.patience import PATIENCE_S, wait_until

from .flows import expected, gated, job, one_step, sync_job
from .harness import ROOT, CrashHarness, check_executions, read
from .verdict import in_witness_time

pytestmark = pytest.mark.slow
# How long a process stands still: long enough for sweeps of others to look at it.
STILL_S = 1.5


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CrashHarness]:
    # On a store with a clock of its own the witness dates the commits.
    made = CrashHarness(tmp_path, told="PostgreSQL" in request.node.name)
    try:
        yield made
    finally:
        made.close()


async def started(url: str, runs: int, span_s: float, first: int = 0) -> list[str]:
    async with buoy.connect(url) as client:
        made = []
        for n in range(first, first + runs):
            workflow = sync_job if n % 3 == 2 else job
            made.append((await client.start_as(f"run{n}", workflow, n, span_s)).id)
        return made


async def ended(url: str, runs: list[str]) -> dict[str, tuple[Any, list[e.Event]]]:
    """The results and logs of all runs, once they have ended."""
    found = {}
    async with buoy.connect(url) as client, asyncio.timeout(PATIENCE_S):
        for run_id in runs:
            result = await (await client.get(run_id)).result()
            found[run_id] = (result, await read_log(client.store, RunId(run_id)))
    return found


async def runners_of(url: str) -> set[int]:
    """The PIDs of the runners that are registered."""
    async with buoy.connect(url) as client:
        return {each.info.pid for each in await client.store.runners()}


async def logs_of(url: str, runs: list[str]) -> dict[str, list[e.Event]]:
    async with buoy.connect(url) as client:
        return {run_id: await read_log(client.store, RunId(run_id)) for run_id in runs}


@pytest.mark.parametrize(
    ("store", "workers", "kills"),
    [
        *(("sqlite", 1, 25), ("sqlite", 2, 25), ("sqlite", 8, 25), ("file", 1, 10), ("file", 2, 10)),
        *(("postgres", 1, 6), ("postgres", 2, 8)),
    ],
    ids=["one", "two", "eight", "one on a folder", "two on a folder", "one on PostgreSQL", "two on PostgreSQL"],
)
def test_every_run_survives_workers_killed_at_random(
    store: str, workers: int, kills: int, harness: CrashHarness
) -> None:
    """Other moments: BUOY_SEED=1, 2, 3..."""
    harness.url = harness.url_of(store)
    chance = random.Random(workers + 1000 * int(os.environ.get("BUOY_SEED", "0")))
    names: list[str] = []
    living = [harness.fork_worker() for _ in range(workers)]
    killed, hits = 0, 0
    # Until one of them was killed at work, whatever chance says.
    while killed < kills or hits == 0:
        # New work for each kill, so that most of them hit a worker with something in its hands.
        names += asyncio.run(started(harness.url, 3, 0.02, len(names)))
        lines = len(harness.seen())
        wait_until(lambda before=lines: len(harness.seen()) > before, "work")
        time.sleep(chance.uniform(0.0, 0.08))
        pid = living.pop(chance.randrange(len(living)))
        harness.kill(pid)
        living.append(harness.fork_worker())
        killed += 1
        hits += harness.died_at_work(pid)
    found = asyncio.run(ended(harness.url, names))
    seen = harness.seen()
    extra = 0
    for n, run_id in enumerate(names):
        result, log = found[run_id]
        assert result == expected(n)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        dated = in_witness_time(log, [each for each in seen if each.run == run_id]) if store == "postgres" else log
        extra += check_executions(seen, dated, run_id, harness.killed_at)
    claims = [event.body for _, log in found.values() for event in log if isinstance(event.body, e.Claimed)]
    taken_over = sum(claim.cause == "taken_over" for claim in claims)
    assert taken_over >= hits, "a run changed hands without a word"
    assert extra > 0
    print(f"{workers} workers: {killed} kills, {hits} at work, {taken_over} taken over, {extra} bodies ran once more")


@pytest.mark.parametrize("name", ["job", "sync_job"])
def test_a_death_at_any_commit_is_survived(name: str, tmp_path: Path) -> None:
    """Systematic: just before and just after each commit of a run's life."""
    commits = 12
    drivers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.crash.points", str(tmp_path), name, str(commits), str(offset), "2"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for offset in range(2)
    ]
    died = 0
    for driver in drivers:
        out, err = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, err
        lines = [json.loads(line) for line in out.splitlines()]
        for point, end in zip(lines[::2], lines[1::2], strict=True):
            where = f"{point['side']} commit {point['point']}: {end} {err[-2000:]}"
            died += point["died"]
            assert end["result"] == expected(7), where
            assert end["anomalies"] == [], where
            witness = Path(point["folder"]) / "witness"
            starts = Counter(
                (each.leaf, each.attempt)
                for each in map(read, witness.read_text().splitlines())
                if each.what == "start"
            )
            assert max(starts.values()) <= 2, where
            again = sum(times - 1 for times in starts.values())
            # Only what was under way at the one death: at most the three bodies that run side by side.
            assert again <= 3, where
    assert died >= commits


def test_sigterm_under_load_gives_runs_back_and_the_next_worker_finishes_them(harness: CrashHarness) -> None:
    names = asyncio.run(started(harness.url, 20, 0.6))
    first = harness.worker(grace_s=PATIENCE_S)
    wait_until(lambda: len(harness.seen()) > 20, "work")
    first.send_signal(signal.SIGTERM)
    # When its steps have ended, and not only when the grace time is over.
    assert first.wait(PATIENCE_S / 2) == 0
    logs = asyncio.run(logs_of(harness.url, names))
    given_back = [run for run, log in logs.items() if log[-1].type == "interrupted"]
    assert given_back, "nothing was under way: the test shows nothing"
    harness.worker()
    found = asyncio.run(ended(harness.url, names))
    seen = harness.seen()
    starts = Counter((each.run, each.leaf, each.attempt) for each in seen if each.what == "start")
    assert set(starts.values()) == {1}, "a graceful stop must not repeat a body"
    for n, run_id in enumerate(names):
        result, log = found[run_id]
        assert result == expected(n)
        causes = [event.body.cause for event in log if isinstance(event.body, e.Claimed)]
        assert "taken_over" not in causes, "the crash budget was charged"
        if run_id in given_back:
            assert causes[-1] == "interrupted"


def test_sigterm_with_a_step_beyond_the_grace_time_still_ends_and_the_run_comes_back(harness: CrashHarness) -> None:
    async def start() -> None:
        async with buoy.connect(harness.url) as client:
            await client.start_as("run", gated, str(gate))

    gate = harness.folder / "gate"
    asyncio.run(start())
    first = harness.worker(grace_s=0.3)
    wait_until(lambda: len(harness.seen()) == 1, "the step to begin")
    first.send_signal(signal.SIGTERM)
    # The step is in a thread that cannot be stopped, and does not end: the process ends all the same.
    assert first.wait(PATIENCE_S) == 0
    harness.killed_at[first.pid] = time.time()
    gate.touch()
    harness.worker()
    found = asyncio.run(ended(harness.url, ["run"]))
    assert found["run"][0] == 1
    assert check_executions(harness.seen(), found["run"][1], "run", harness.killed_at) == 1


def test_nobody_takes_over_from_a_worker_that_only_stands_still(harness: CrashHarness) -> None:
    async def start() -> None:
        async with buoy.connect(harness.url) as client:
            await client.start_as("run", one_step, 30.0)

    asyncio.run(start())
    first = harness.worker()
    wait_until(lambda: len(harness.seen()) == 1, "the step to begin")
    harness.worker()
    freeze(first.pid, harness.url)
    # The second worker sweeps, and buries the dead; it must not touch the run of a living process, however silent.
    for _ in range(2):
        third = harness.worker()
        harness.kill(third.pid)
        wait_until(lambda pid=third.pid: pid not in asyncio.run(runners_of(harness.url)), "the dead to be retired")
    before = asyncio.run(logs_of(harness.url, ["run"]))["run"]
    assert [event.type for event in before].count("claimed") == 1
    assert len(harness.seen()) == 1
    harness.kill(first.pid)
    wait_until(lambda: len(harness.seen()) == 2, "the second worker to take over")
    after = asyncio.run(logs_of(harness.url, ["run"]))["run"]
    claims = [event.body for event in after if isinstance(event.body, e.Claimed)]
    assert [claim.cause for claim in claims] == ["created", "taken_over"]
    assert claims[1].evidence["pid"] == first.pid
    assert claims[1].evidence["proof"]
    attempts = {each.attempt for each in harness.seen()}
    assert attempts == {1}, "a crash repeats the same attempt"


def test_a_worker_that_stood_still_goes_on_where_it_was(harness: CrashHarness) -> None:
    # Both are up before: a process that is stopped in the middle of a write keeps SQLite's lock, and the other one
    # has to live with a store that does not answer.
    workers = [harness.worker(), harness.worker()]
    names = asyncio.run(started(harness.url, 10, 0.1))
    wait_until(lambda: bool(harness.seen()), "the first step")
    busy = harness.seen()[0].pid  # one of them may have taken all the work
    os.kill(busy, signal.SIGSTOP)
    time.sleep(STILL_S)
    os.kill(busy, signal.SIGCONT)
    found = asyncio.run(ended(harness.url, names))
    for n, run_id in enumerate(names):
        result, log = found[run_id]
        assert result == expected(n)
        assert check_executions(harness.seen(), log, run_id, {}) == 0
    assert [each.poll() for each in workers] == [None, None]
