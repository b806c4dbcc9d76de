"""One life of a DBOS process with many workflows: the first is killed in the middle, the second recovers them.

Async workflows, since a thousand of them are to be in the middle of a step at the same time.
Usage: recovery_dbos.py --dir DIR LIFE RUNS
"""

import asyncio
import sys
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID
from recovery_witness import DONE, STEPS, Witness

FOLDER, LIFE, RUNS = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
WITNESS = Witness(FOLDER, LIFE)


@DBOS.step()
async def work(step: int, run: int) -> int:
    WITNESS.ran(step, run)
    if LIFE == 1 and step == DONE:
        await asyncio.sleep(3600)
    return step


@DBOS.workflow()
async def job(run: int) -> int:
    return sum([await work(step, run) for step in range(STEPS)])


async def main() -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{FOLDER / 'dbos.sqlite'}",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    # Recovers what its last life left pending.
    DBOS.launch()
    if LIFE == 1:
        for run in range(RUNS):
            with SetWorkflowID(f"job-{run}"):
                await DBOS.start_workflow_async(job, run)
    await asyncio.sleep(3600)


asyncio.run(main())
