"""One life of a Buoy process with many runs: the first is killed in the middle, the second takes them over.

Usage: recovery_buoy.py --dir DIR LIFE RUNS
"""

import asyncio
import sys
from pathlib import Path

from recovery_witness import DONE, STEPS, Witness

import buoy

FOLDER, LIFE, RUNS = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
WITNESS = Witness(FOLDER, LIFE)


@buoy.step
async def work(step: int, run: int) -> int:
    WITNESS.ran(step, run)
    if LIFE == 1 and step == DONE:
        await asyncio.sleep(3600)
    return step


@buoy.workflow
async def job(run: int) -> int:
    return sum([await work(step, run) for step in range(STEPS)])


async def main() -> None:
    async with buoy.open(f"sqlite:///{FOLDER / 'buoy.db'}", workflows=[job]) as app:
        if LIFE == 1:
            await asyncio.gather(*(app.start_as(f"job-{run}", job, run) for run in range(RUNS)))
        await asyncio.sleep(3600)


asyncio.run(main())
