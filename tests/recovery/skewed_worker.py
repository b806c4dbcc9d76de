"""A worker whose clock is wrong: `python -m tests.recovery.skewed_worker URL AHEAD_S PLACE`. SIGTERM stops it.

The clock is given to the engine where the wiring makes it; the product has no setting for that.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import buoy
from buoy.host.processes import host
from buoy.wiring import local_worker
from tests.patience import LOOK_S

# Longer than a busy machine needs from the beginning of the nap to the death of its worker.
NAP_S = 6.0


class AheadClock:
    """The clock of a machine that is ahead of others."""

    ahead_s = 0.0
    monotonic = staticmethod(time.monotonic)

    def now(self) -> float:
        return time.time() + self.ahead_s


@buoy.step
async def work(place: str) -> str:
    """Runs until its file is there; on any host but the first it needs none."""
    with Path(place).open("a") as out:
        out.write(f"{host()}\n")
    while host() == "node-a" and not Path(f"{place}.open").exists():
        await asyncio.sleep(LOOK_S)
    return host()


@buoy.workflow
async def works(place: str) -> str:
    return await work(place)


@buoy.workflow
async def naps(place: str) -> float:
    """The seconds that passed for the run."""
    began = buoy.now()
    await asyncio.sleep(NAP_S)
    return (buoy.now() - began).total_seconds()


@buoy.workflow
async def append_commit(place: str) -> str:
    """Waits for a signal, then works and naps: what the next owner does by its own clock."""
    await buoy.wait_signal("go")
    await asyncio.sleep(NAP_S / 10)
    return await work(place)


WORKFLOWS = (works, naps, append_commit)


async def main(url: str, ahead_s: float) -> None:
    AheadClock.ahead_s = ahead_s
    local_worker.SystemClock = AheadClock  # type: ignore[misc, assignment]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with buoy.open(url, workflows=WORKFLOWS, options=buoy.RunnerOptions(stop_grace_s=0.1)):
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
