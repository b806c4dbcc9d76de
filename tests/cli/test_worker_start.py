"""A worker whose store gives no answer at its start waits for it, says so, and stops when it is asked to."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import Server, start_server

from .conftest import FLOWS, Buoy, Process, Spawn, until

WAITS = "the worker waits for its store"


@pytest.fixture
def away(buoy: Buoy) -> Iterator[Server]:
    """A server that is stopped."""
    made = start_server(18)
    made.stop()
    buoy.store = made.url("runs")
    yield made


def starting(spawn: Spawn, *words: str) -> Process:
    found = spawn("worker", str(FLOWS), *words)
    until(lambda: WAITS in found.output(), found)
    return found


@pytest.mark.parametrize("pool", [(), ("--processes", "2")], ids=["alone", "pool"])
def test_a_worker_that_starts_before_its_server_waits_for_it(
    buoy: Buoy, spawn: Spawn, away: Server, pool: tuple[str, ...]
) -> None:
    worker = starting(spawn, *pool)
    away.control("start")
    until(lambda: "drives" in worker.output(), worker)
    buoy("start", f"{FLOWS}:parts", "--input", f'{{"witness": "{buoy.witness}", "count": 2}}', "--id", "r1")
    assert buoy("result", "r1", "--timeout", f"{PATIENCE_S:g}s").exit_code == 0
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    told = [line.partition("  ")[2] for line in worker.output().splitlines() if WAITS in line]
    assert len(told) == len(set(told)), "each worker says the same trouble once"


def test_a_worker_that_waits_for_its_server_can_be_stopped(spawn: Spawn, away: Server) -> None:
    worker = starting(spawn)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert worker.output().rstrip().endswith("stopped")


def test_a_worker_until_idle_does_not_wait_for_its_server(buoy: Buoy, away: Server) -> None:
    found = buoy("worker", str(FLOWS), "--until-idle", code=5)
    assert "no connection to" in found.output
