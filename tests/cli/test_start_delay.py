"""`--start-delay` of the worker and the sweeper."""

from __future__ import annotations

import asyncio
import sqlite3
import time

import buoy as library
from buoy.operations.targets.workflow_files import find_workflow
from buoy.testing.clock import ManualClock

from .conftest import FLOWS, Buoy, Spawn, until


def put_off_for_good(buoy: Buoy) -> None:
    """A run whose task nothing will ever make due, an hour old: only a whole sweep finds it."""

    async def start() -> None:
        async with library.connect(buoy.store) as client:
            client.clock = ManualClock(time.time() - 3600.0)
            await client.start_as("lost", find_workflow(f"{FLOWS}:divide"), 12)

    asyncio.run(start())
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        connection.execute("UPDATE tasks SET due_at = NULL")
    connection.close()


def status(buoy: Buoy) -> str:
    return str(buoy.json("show", "lost")["document"]["status"])


def test_a_worker_until_idle_waits_for_the_whole_sweep_that_was_asked_for(buoy: Buoy) -> None:
    put_off_for_good(buoy)
    buoy("worker", str(FLOWS), "--until-idle")
    assert status(buoy) == "pending"
    buoy("worker", str(FLOWS), "--until-idle", "--start-delay", "0")
    assert status(buoy) == "completed"


def test_a_delay_of_no_sweep_is_refused(buoy: Buoy) -> None:
    told = buoy("worker", str(FLOWS), "--no-sweeper", "--start-delay", "1m", code=2).stderr
    assert "--no-sweeper and --start-delay contradict each other" in told


def test_a_sweeper_looks_for_the_dead_and_sweeps_whole_only_after_its_delay(buoy: Buoy, spawn: Spawn) -> None:
    put_off_for_good(buoy)
    late = spawn("sweeper", "--start-delay", "1h")
    until(lambda: "sweeping" in late.output(), late)
    at_once = spawn("sweeper")
    until(lambda: "swept in" in at_once.output(), at_once)
    assert "swept in" not in late.output()
    assert "lost resumed" in at_once.output()
