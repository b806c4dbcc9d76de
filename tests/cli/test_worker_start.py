"""A worker whose store gives no answer at its start waits for it, says so, and stops when it is asked to."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import Awaitable, Callable, Iterator

import pytest

from buoy.cli.terminal.sessions.worker import work
from buoy.operations.workers.worker import WorkerOrder, worker_registry
from buoy.ports.host import Clock
from buoy.stores import open_store
from buoy.wiring import inspection
from tests import patience
from tests.lossy import LossyStore
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


async def _while_its_start_is_lost(
    buoy: Buoy, monkeypatch: pytest.MonkeyPatch, then: Callable[[io.StringIO, dict[str, float]], Awaitable[None]]
) -> tuple[str, tuple[int, str | None]]:
    """A worker whose store opens, and then loses what it asks first: its registration. What it printed, and its end."""
    rates = {"register": 1.0}

    async def opened(url: str, clock: Clock) -> LossyStore:
        return LossyStore(await open_store(url, clock), seed=1, rate=0.0, rates=rates)

    monkeypatch.setattr(inspection, "open_store", opened)
    registry = worker_registry((str(FLOWS),), specs=False)
    order = WorkerOrder(registry=registry, queues=("default",), concurrency=9, until_idle=False, grace_s=1.0)
    out = io.StringIO()
    working = asyncio.ensure_future(work(order, buoy.store, out, as_json=False))
    await patience.until(lambda: WAITS in out.getvalue() or working.done())
    assert not working.done(), "it ended instead"
    await then(out, rates)
    signal.raise_signal(signal.SIGTERM)
    return out.getvalue(), await working


def test_a_worker_whose_server_leaves_while_it_starts_waits_for_it(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def comes_back(out: io.StringIO, rates: dict[str, float]) -> None:
        rates.clear()
        await patience.until(lambda: "drives" in out.getvalue())

    printed, end = asyncio.run(_while_its_start_is_lost(buoy, monkeypatch, comes_back))
    assert "the answer to register was lost" in printed
    assert end == (0, None)


def test_a_worker_can_be_stopped_while_it_waits_to_be_registered(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stays_away(out: io.StringIO, rates: dict[str, float]) -> None:
        assert "drives" not in out.getvalue()

    _, end = asyncio.run(_while_its_start_is_lost(buoy, monkeypatch, stays_away))
    assert end == (0, None)
