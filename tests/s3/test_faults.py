"""Real workers on a real bucket, under faults: every run ends, with the right result, and no recorded step is repeated.

Each fault is played by the proxy, by SIGKILL or by SIGSTOP. The witness file tells which bodies ran.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.errors import Unavailable
from tests.crash.flows import expected
from tests.crash.harness import CrashHarness, check_executions
from tests.crash.test_kills import ended, logs_of, started
from tests.crash.verdict import Story, broken
from tests.patience import PATIENCE_S, wait_until

from .proxy import PASS, Act, Proxy, Request, proxy
from .seaweed import Seaweed, seaweed

pytestmark = pytest.mark.slow


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CrashHarness]:
    made = CrashHarness(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def between(server: Seaweed) -> Iterator[Proxy]:
    with proxy(server) as running:
        yield running


def judged(harness: CrashHarness, names: list[str]) -> int:
    """All runs have ended well. The number of bodies that ran once more because of a kill."""
    found = asyncio.run(ended(harness.url, names))
    seen, extra = harness.seen(), 0
    for n, run_id in enumerate(names):
        result, log = found[run_id]
        assert result == expected(n)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        extra += check_executions(seen, log, run_id, harness.killed_at)
    return extra


def taken_over(harness: CrashHarness, names: list[str]) -> int:
    logs = asyncio.run(logs_of(harness.url, names)).values()
    return sum(isinstance(each.body, e.Claimed) and each.body.cause == "taken_over" for log in logs for each in log)


def test_every_run_survives_workers_killed_at_random(server: Seaweed, prefix: str, harness: CrashHarness) -> None:
    harness.url = server.url(prefix)
    chance = random.Random(int(os.environ.get("BUOY_SEED", "0")))
    names: list[str] = []
    living = [harness.fork_worker() for _ in range(2)]
    killed, hits = 0, 0
    while killed < 5 or hits == 0:
        names += asyncio.run(started(harness.url, 3, 0.02, len(names)))
        lines = len(harness.seen())
        wait_until(lambda before=lines: len(harness.seen()) > before, "work")
        time.sleep(chance.uniform(0.0, 0.08))
        pid = living.pop(chance.randrange(len(living)))
        harness.kill(pid)
        living.append(harness.fork_worker())
        killed += 1
        hits += harness.died_at_work(pid)
    judged(harness, names)
    assert taken_over(harness, names) >= hits, "a run changed hands without a word"


@pytest.mark.parametrize("point", [3, 14, 24, 34])
def test_a_kill_between_two_requests_is_survived(
    between: Proxy, prefix: str, harness: CrashHarness, point: int
) -> None:
    """The n-th write of the worker, whatever it belongs to: a registration, a claim, a commit, a release or an end."""
    harness.url = between.url(prefix)
    names = asyncio.run(started(harness.url, 2, 0.0))
    victim: list[int] = []
    writes = [0]

    def plan(request: Request) -> Act:
        if request.kind not in ("PUT", "DELETE") or not victim:
            return PASS
        writes[0] += 1
        if writes[0] != point:
            return PASS
        os.kill(victim[0], signal.SIGKILL)
        return Act(drop=("before", "after")[point % 2])

    between.plan = plan
    victim.append(harness.fork_worker())
    wait_until(lambda: not Path(f"/proc/{victim[0]}").exists(), "the worker to be killed")
    harness.killed_at[victim[0]] = time.time()
    harness._workers.pop(victim[0])
    harness.fork_worker()
    judged(harness, names)


@pytest.mark.parametrize("fault", ["throttled", "answers lost", "requests lost", "errors"])
def test_every_run_ends_while_the_network_fails(between: Proxy, prefix: str, harness: CrashHarness, fault: str) -> None:
    harness.url = between.url(prefix)
    names = asyncio.run(started(harness.url, 6, 0.0))
    dice = random.Random(3)
    share, act = {
        "throttled": (1 / 3, Act(status=503, code="SlowDown")),
        "answers lost": (0.1, Act(drop="after")),
        "requests lost": (0.1, Act(drop="before")),
        "errors": (0.1, Act(status=500, instead=False)),
    }[fault]

    def plan(request: Request) -> Act:
        with between.lock:
            return act if dice.random() < share else PASS

    between.plan = plan
    harness.worker()
    try:
        wait_until(lambda: _all_ended(harness, names), "the end")
    finally:
        between.plan = lambda request: PASS
    assert judged(harness, names) == 0
    assert sum(between.struck.values()) > 10


def _all_ended(harness: CrashHarness, names: list[str]) -> bool:
    async def look() -> bool:
        async with buoy.connect(harness.url) as client:
            return all([(await client.record(name)).document.ended for name in names])

    try:
        return asyncio.run(look())
    except Unavailable:
        return False


def test_a_server_that_is_killed_under_load_loses_nothing(tmp_path: Path, harness: CrashHarness) -> None:
    with seaweed(tmp_path / "seaweed") as own:
        harness.url = own.url("place")
        names = asyncio.run(started(harness.url, 6, 0.1))
        harness.worker()
        wait_until(lambda: len(harness.seen()) >= 3, "work")
        own.kill()
        own.start()
        assert judged(harness, names) == 0
        harness.close()


def test_no_bucket_for_a_while_costs_only_time(between: Proxy, prefix: str, harness: CrashHarness) -> None:
    harness.url = between.url(prefix)
    names = asyncio.run(started(harness.url, 4, 0.1))
    harness.worker()
    wait_until(lambda: len(harness.seen()) >= 2, "work")
    refused = [0]

    def plan(request: Request) -> Act:
        refused[0] += 1
        return Act(drop="before")

    between.plan = plan
    wait_until(lambda: refused[0] >= 30, "many refused requests")
    between.plan = lambda request: PASS
    assert judged(harness, names) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_host_takes_over_by_two_looks(server: Seaweed, prefix: str, harness: CrashHarness, number: int) -> None:
    """Killed, or only stopped past its death: then it comes back, finds itself declared dead, and repeats nothing."""
    harness.url = server.url(prefix)
    first = harness.worker(host="north")
    names = asyncio.run(started(harness.url, 3, 0.3))
    wait_until(lambda: len(harness.seen()) >= 2, "work")
    harness.killed_at[first.pid] = time.time()
    os.kill(first.pid, number)
    harness.worker(host="south")
    try:
        judged(harness, names)
        assert taken_over(harness, names) >= 1
    finally:
        if number == signal.SIGSTOP:
            woken = time.time()
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(PATIENCE_S) == 1, "it was declared dead"
    if number == signal.SIGSTOP:
        unchanged(harness, names, {first.pid: (harness.killed_at[first.pid], woken)})


def unchanged(harness: CrashHarness, names: list[str], asleep: dict[int, tuple[float, float]]) -> None:
    """What it came back with changed nothing. A body may have begun if the store had its start before the stop."""
    logs, seen = asyncio.run(logs_of(harness.url, names)), harness.seen()
    for n, run_id in enumerate(names):
        of_run = [each for each in seen if each.run == run_id]
        story = Story(RunId(run_id), "resume", expected(n), logs[run_id], frozenset(), of_run, asleep)
        assert broken(story) == []
