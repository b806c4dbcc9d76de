"""A store with more runners than a terminal can show."""

from __future__ import annotations

import asyncio

import buoy as library
from buoy.core.ids import RunnerId
from buoy.ports.records import RunnerInfo

from .conftest import FLOWS, Buoy


async def _register(url: str, number: int) -> None:
    async with library.connect(url) as client:
        for each in range(number):
            info = RunnerInfo(
                id=RunnerId(f"runner-{each:04}"), host="elsewhere", boot_id="", pid_namespace="", pid=1,
                process_started="", nonce=str(each), workflows={"divide": ("v",)}, queues=("default",),
            )  # fmt: skip
            await client.store.register(info)


def test_the_report_shows_a_hundred_runners_and_counts_the_others(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "r")
    asyncio.run(_register(buoy.store, 120))
    shown = buoy("status", code=1).stdout
    assert shown.count("runner-") == 100
    assert "and 20 more runners: `buoy status --json`" in shown
    assert len(buoy.json("status", code=1)["runners"]) == 120
