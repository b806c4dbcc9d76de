"""Two real workers whose clocks are an hour apart, on stores that have no clock of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.ports.records import RunnerRecord
from buoy.recovery.failure_detector import SILENT, FailureDetector
from tests.freeze import freeze
from tests.patience import LOOK_S, PATIENCE_S, wait_until

from .skewed_worker import NAP_S, append_commit, naps, works

HOUR_S = 3600.0
HERE = Path(__file__).resolve().parents[2]
# Far less than the clocks differ by, and as long as a busy machine may need.
SOON_S = PATIENCE_S

on_both_stores = pytest.mark.parametrize("kind", ["sqlite", "folder"])
# The first worker's clock against the second one's.
both_ways = pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])


@contextmanager
def worker(name: str, url: str, ahead_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """A machine of its own, with a clock of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.recovery.skewed_worker", url, str(ahead_s)],
        cwd=HERE, env={**os.environ, "BUOY_HOST": name}, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def place_of(tmp_path: Path, kind: str) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else f"file://{tmp_path / 'runs'}"


def started(url: str, place: Path, *workflows: buoy.Workflow[[str], object]) -> None:
    async def start() -> None:
        async with buoy.connect(url) as client:
            for workflow in workflows:
                await client.start_as(workflow.name, workflow, str(place))

    asyncio.run(start())


def log_of(url: str, run_id: str) -> list[e.Event]:
    async def read() -> list[e.Event]:
        async with buoy.connect(url) as client:
            return await client.store.events(RunId(run_id))

    return asyncio.run(read())


def types_of(url: str, run_id: str) -> list[str]:
    return [event.type for event in log_of(url, run_id)]


def in_time(log: list[e.Event]) -> bool:
    """No timer fired before its time, by the run's own time, which never went back."""
    due = {event.body.leaf: event.body.due_at for event in log if isinstance(event.body, e.TimerStarted)}
    fired = [event for event in log if isinstance(event.body, e.TimerFired)]
    dates = [event.at for event in log]
    return dates == sorted(dates) and all(event.at >= due[event.body.leaf] for event in fired)  # type: ignore[union-attr]


@pytest.mark.slow
@on_both_stores
@both_ways
def test_a_worker_that_stops_hands_over_at_once(tmp_path: Path, kind: str, ahead_s: float) -> None:
    url, place = place_of(tmp_path, kind), tmp_path / "executed"
    with worker("node-a", url, ahead_s) as first, worker("node-b", url, 0.0) as second:
        freeze(second.pid, url)
        started(url, place, works, naps)
        wait_until(lambda: place.exists() and "timer_started" in types_of(url, "naps"))
        second.send_signal(signal.SIGCONT)
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE_S) == 0
        began = time.monotonic()
        for run_id in ("works", "naps"):
            wait_until(lambda run_id=run_id: types_of(url, run_id)[-1] == "workflow_completed")  # type: ignore[misc]
        assert time.monotonic() - began < SOON_S
    log = log_of(url, "naps")
    assert in_time(log)
    claims = [event.body for event in log if isinstance(event.body, e.Claimed)]
    assert [claim.cause for claim in claims] == ["created", "interrupted"]
    ended = log[-1].body
    assert isinstance(ended, e.WorkflowCompleted)
    assert float(bytes(ended.result)) >= NAP_S
    assert place.read_text() == "node-a\nnode-b\n"


@pytest.mark.slow
@on_both_stores
@both_ways
def test_the_runs_of_a_killed_worker_go_on(
    tmp_path: Path, kind: str, ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUOY_HOST", "node-c")
    url, place = place_of(tmp_path, kind), tmp_path / "executed"
    with worker("node-b", url, 0.0) as second:
        # It is up, and stands still: the first one has all runs, and dies before the nap is over.
        freeze(second.pid, url)
        with worker("node-a", url, ahead_s) as first:
            assert asyncio.run(looked_at(url)) == {"node-a": None, "node-b": None}, "a clock proves nothing"
            started(url, place, works, naps, append_commit)
            wait_until(lambda: place.exists() and "signal_waited" in types_of(url, "append_commit"))
            wait_until(lambda: "timer_started" in types_of(url, "naps"))
            first.kill()
            first.wait()
        second.send_signal(signal.SIGCONT)
        asyncio.run(declared_dead(url))
        asyncio.run(signalled(url))
        for run_id in ("works", "naps", "append_commit"):
            wait_until(lambda run_id=run_id: types_of(url, run_id)[-1] == "workflow_completed")  # type: ignore[misc]
    assert all(in_time(log_of(url, run_id)) for run_id in ("naps", "append_commit"))
    assert sorted(place.read_text().split()) == ["node-a", "node-b", "node-b"]


async def signalled(url: str) -> None:
    async with buoy.connect(url) as client:
        await client.signal("append_commit", "go", None)


async def looked_at(url: str) -> dict[str, object]:
    """What an observer of a third machine makes of each worker at one look."""
    async with buoy.connect(url) as client:
        detector = FailureDetector(client.store, client.liveness, client.clock)
        return {each.info.host: await detector.proof(each) for each in await client.store.runners()}


async def declared_dead(url: str) -> None:
    """By two looks of a third machine, which has less patience than a real one."""
    async with buoy.connect(url) as client:

        async def first() -> RunnerRecord:
            (record,) = [each for each in await client.store.runners() if each.info.host == "node-a"]
            return record

        detector = FailureDetector(
            client.store, client.liveness, client.clock, suspect_after_s=0.4, apart_s=0.3, slack_s=5.0
        )
        async with asyncio.timeout(PATIENCE_S):
            while (proof := await detector.proof(await first())) is None:
                await asyncio.sleep(LOOK_S)
        assert proof["proof"] == SILENT
        # On a busy machine a run that rests may have been given back by then; the one that executes was not.
        assert await detector.declare_dead(await first(), proof) in (1, 2, 3)
