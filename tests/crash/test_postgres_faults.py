"""PostgreSQL in trouble under load: no run is lost, no completed step is repeated, none is stuck.

The witness file and the logs judge, as in the other crash tests. Each test has a server of its own kind of trouble.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.read_log import read_log
from buoy.stores.postgres.address import address_of
from tests.patience import LOOK_S, PATIENCE_S, wait_until
from tests.postgres_proxy import Fault, Proxy, struck
from tests.postgres_server import Server, fresh_schema, start_server

from .flows import WITNESS, expected, job, sync_job
from .harness import CrashHarness, check_executions
from .storm import restarts, storm
from .verdict import Story, broken, in_witness_time

pytestmark = pytest.mark.slow
SPAN_S = 0.1
# The long form: BUOY_STANDSTILL_S=45.
STANDSTILL_S = float(os.environ.get("BUOY_STANDSTILL_S", "12"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = start_server(18, "max_connections=40")
    yield made
    made.stop()


@pytest.fixture
def harness(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashHarness]:
    made = CrashHarness(tmp_path, told=True)
    made.url = server.url(fresh_schema())
    monkeypatch.setenv(WITNESS, str(made.witness))
    try:
        yield made
    finally:
        made.close()


def start(url: str, runs: int, span_s: float = SPAN_S) -> list[str]:
    """Starts so many runs, and gives their ids."""

    async def begin() -> None:
        async with buoy.connect(url) as client:
            for number in range(runs):
                await client.start_as(f"run{number}", sync_job if number % 3 == 2 else job, number, span_s)

    asyncio.run(begin())
    return [f"run{number}" for number in range(runs)]


def logs_at_the_end(url: str, runs: list[str]) -> dict[str, list[e.Event]]:
    async def wait() -> dict[str, list[e.Event]]:
        async with buoy.connect(url) as client, asyncio.timeout(PATIENCE_S):
            for run_id in runs:
                await (await client.get(run_id)).result()
            return {run_id: await read_log(client.store, RunId(run_id)) for run_id in runs}

    return asyncio.run(wait())


def judge(
    harness: CrashHarness, logs: dict[str, list[e.Event]], asleep: dict[int, tuple[float, float]] | None = None
) -> None:
    """Every promise was kept."""
    seen = harness.seen()
    for number, (run_id, log) in enumerate(logs.items()):
        of_run = [each for each in seen if each.run == run_id]
        dated = in_witness_time(log, of_run)
        story = Story(RunId(run_id), "resume", expected(number), dated, frozenset(), of_run, asleep or {})
        assert broken(story) == []
        if not asleep:
            check_executions(of_run, dated, run_id, harness.killed_at)


def takeovers(logs: dict[str, list[e.Event]]) -> list[e.Claimed]:
    bodies = [event.body for log in logs.values() for event in log]
    return [body for body in bodies if isinstance(body, e.Claimed) and body.cause == "taken_over"]


def at_work(harness: CrashHarness, steps: int) -> None:
    wait_until(lambda: sum(each.what == "start" for each in harness.seen()) >= steps, f"{steps} steps")


@pytest.mark.parametrize("fault", ["drop", "delay", "cut"])
def test_commits_whose_answers_are_lost_late_or_cut_count_once(
    server: Server, harness: CrashHarness, fault: Fault
) -> None:
    direct = harness.url
    folder = Path(tempfile.mkdtemp(prefix="buoy-px-"))
    proxy = Proxy(folder, server.folder, fault, chance=0.15, seed=7, delay_s=0.5)
    try:
        harness.url = direct.replace(str(server.folder), str(folder))
        runs = start(direct, 30)
        for _ in range(2):
            harness.worker()
        struck(proxy, 8)
        logs = logs_at_the_end(direct, runs)
    finally:
        proxy.close()
    judge(harness, logs)
    assert takeovers(logs) == [], "a line that breaks is no death"


def test_sessions_that_the_server_ends_at_random_cost_no_run(server: Server, harness: CrashHarness) -> None:
    runs = start(harness.url, 30)
    for _ in range(2):
        harness.worker()
    at_work(harness, 5)
    chance = random.Random(3)
    with psycopg.connect(server.url("x").partition("&schema")[0], autocommit=True) as session:
        ended = 0
        while ended < 25:
            found = session.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'buoy' AND pid <> pg_backend_pid()"
            ).fetchall()
            for (pid,) in found:
                if chance.random() < 0.5:
                    session.execute("SELECT pg_terminate_backend(%s)", (pid,))
                    ended += 1
            time.sleep(20 * LOOK_S)
    logs = logs_at_the_end(harness.url, runs)
    judge(harness, logs)
    assert takeovers(logs) == []


def test_a_server_that_is_restarted_under_killed_workers_loses_and_repeats_nothing(
    server: Server, tmp_path: Path
) -> None:
    """The long form: `python -m tests.crash.storm --store postgres --seconds 180`."""

    async def trouble() -> None:
        await restarts(server, 1, (2.0, 4.0))

    found = asyncio.run(
        storm(
            "postgres",
            seconds=15.0,
            workers=2,
            load=20,
            seed=1,
            folder=tmp_path,
            hits_min=1,
            url=server.url(fresh_schema()),
            trouble=trouble,
        )
    )
    assert found["problems"] == []
    assert (found["lost"], found["repeated"]) == (0, 0)
    assert found["recoveries"]["taken_over"] > 0, "the kills hit nothing: the test shows nothing"


@contextmanager
def standing_still(server: Server) -> Iterator[None]:
    """Inside of this block the server and its sessions are stopped. The server first, so that no session begins."""
    stopped = [server.pid]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.pid)], capture_output=True, text=True)
        for pid in map(int, found.stdout.split()):
            with suppress(ProcessLookupError):  # a session that has just ended
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_nobody_is_declared_dead_while_the_server_stands_still(server: Server, harness: CrashHarness) -> None:
    """Silence counts after 5 s and a second look after 5 more; the server is away for longer than both."""
    quick = {"BUOY_TEST_SILENT_S": "5", "BUOY_TEST_SLACK_S": "1"}
    runs = start(harness.url, 12, span_s=1.5)
    workers = [harness.worker(host=host, **quick) for host in ("harbour", "open-sea")]
    at_work(harness, 6)
    with standing_still(server):
        time.sleep(STANDSTILL_S)  # nothing to wait for: the point is that nothing happens
    logs = logs_at_the_end(harness.url, runs)
    judge(harness, logs)
    assert takeovers(logs) == []
    assert [worker.poll() for worker in workers] == [None, None]


_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'buoy'"
_END_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'buoy'"


def _all_taken(held: list[psycopg.Connection[tuple[object, ...]]], address: str) -> bool:
    """Takes what it gets. Whether nothing is left, and no worker has a session: several times, as sessions end late."""
    for _ in range(5):
        held[0].execute(_END_OTHERS)
        try:
            held.append(psycopg.connect(address, autocommit=True))
            return False
        except psycopg.OperationalError:
            if held[0].execute(_OTHERS).fetchone() != (0,):
                return False
        time.sleep(10 * LOOK_S)
    return True


def test_workers_outlast_a_server_without_a_free_connection(server: Server, harness: CrashHarness) -> None:
    runs = start(harness.url, 15)
    workers = [harness.worker() for _ in range(2)]
    at_work(harness, 5)
    address = server.url("x").partition("&schema")[0]
    held = [psycopg.connect(address, autocommit=True)]
    try:
        wait_until(lambda: _all_taken(held, address), "no connection to be left")
        log = f"SELECT count(*) FROM {address_of(harness.url).quoted}.log".encode()
        before = held[0].execute(log).fetchone()
        time.sleep(400 * LOOK_S)  # so long no worker gets a session
        assert held[0].execute(log).fetchone() == before, "a worker had a session"
        assert held[0].execute(_OTHERS).fetchone() == (0,)
        assert [worker.poll() for worker in workers] == [None, None]
    finally:
        for each in held:
            each.close()
    logs = logs_at_the_end(harness.url, runs)
    judge(harness, logs)
    assert takeovers(logs) == []


def test_another_host_takes_over_what_a_killed_one_held(harness: CrashHarness) -> None:
    runs = start(harness.url, 8, span_s=1.0)
    victim = harness.worker(host="harbour")
    at_work(harness, 8)
    # First: the next worker needs its time to begin, and the runs would end.
    harness.kill(victim.pid)
    successor = harness.worker(host="open-sea")
    logs = logs_at_the_end(harness.url, runs)
    judge(harness, logs)
    found = takeovers(logs)
    assert found and {claim.evidence["proof"] for claim in found} == {"silent"}
    assert successor.poll() is None


def test_workers_whose_clocks_differ_by_an_hour_hand_work_over_at_once(harness: CrashHarness) -> None:
    """A due time is a distance from the writer's now: the hour counts on neither way."""
    runs = start(harness.url, 6, span_s=2.0)
    began = time.monotonic()
    ahead = harness.worker(BUOY_TEST_SKEW_S="3600")
    at_work(harness, 6)
    harness.kill(ahead.pid, signal.SIGTERM)
    behind = harness.worker(BUOY_TEST_SKEW_S="-3600")
    wait_until(lambda: any(each.pid == behind.pid for each in harness.seen()), "the other to take over")
    logs = logs_at_the_end(harness.url, runs)
    assert time.monotonic() - began < PATIENCE_S, "a timer waited for the wrong clock"
    ends = [(each.run, each.leaf) for each in harness.seen() if each.what == "end"]
    assert len(ends) == len(set(ends)), "a completed step was repeated"
    assert all(isinstance(log[-1].body, e.WorkflowCompleted) for log in logs.values())
    at = [event.at for event in next(iter(logs.values()))]
    assert at == sorted(at), "a run's own time went back"
