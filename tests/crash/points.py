"""Dies at every commit in turn: `python -m tests.crash.points FOLDER WORKFLOW COUNT`.

A point is a commit number and a side of it: just before the store is asked, or just after it answered. For each point a
child process starts one run and kills itself there; a second child takes over. One JSON line for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import buoy
from buoy.stores.sqlite.store import SqliteStore
from tests.patience import PATIENCE_S

from .flows import WITNESS, WORKFLOWS

FINISH_S = PATIENCE_S


async def begin(url: str, name: str, point: int, side: str) -> None:
    """Starts the run, and dies at the given commit."""
    count = 0
    true_commit = SqliteStore.commit

    async def commit(self: SqliteStore, writes: Any) -> Any:
        nonlocal count
        count += 1
        if count == point and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await true_commit(self, writes)
        if count == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    SqliteStore.commit = commit  # type: ignore[method-assign]
    workflow = next(each for each in WORKFLOWS if each.name == name)
    async with buoy.open(url, workflows=WORKFLOWS) as app:
        run = await app.start_as("run", workflow, 7, 0.001)
        async with asyncio.timeout(FINISH_S):
            await run.result()


async def finish(url: str, name: str) -> None:
    """Takes over whatever the first one left, or starts the run if it never became durable."""
    workflow = next(each for each in WORKFLOWS if each.name == name)
    async with buoy.open(url, workflows=WORKFLOWS) as app:
        run = await app.start_as("run", workflow, 7, 0.001)
        async with asyncio.timeout(FINISH_S):
            result = await run.result()
        state = await app.state("run")
    print(json.dumps({"result": result, "claims": state.claims, "anomalies": state.anomalies}), flush=True)


def in_child(work: Coroutine[Any, Any, None]) -> int:
    """The wait status of a child that did this."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(work)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    work.close()
    return os.waitpid(child, 0)[1]


def main(folder: str, name: str, count: int, offset: int, stride: int) -> None:
    points = [(point, side) for point in range(1, count + 1) for side in ("before", "after")]
    for point, side in points[offset::stride]:
        place = Path(folder) / f"{name}-{point}-{side}"
        place.mkdir()
        os.environ[WITNESS] = str(place / "witness")
        url = f"sqlite:///{place}/runs.db"
        died = os.WIFSIGNALED(in_child(begin(url, name, point, side)))
        print(json.dumps({"point": point, "side": side, "died": died, "folder": str(place)}), flush=True)
        status = in_child(finish(url, name))
        if status != 0:
            print(json.dumps({"result": None, "status": status}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
