"""A worker as a process of its own: `python -m tests.crash.worker URL`. SIGTERM stops it gracefully.

With `--nursery` it forks a worker for each line on its standard input and answers with the PID: no time is lost with
imports, so that many can be killed in a short time. With `--told` the witness is told of every commit that a store has
acknowledged; with `--apart` it counts as on a machine of its own (BUOY_HOST), where silence is all that is known of the
others. Declared gone by others, it says so and ends with 1, as `buoy worker` does. After SIGUSR1 it can write no file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import buoy
from buoy.config import HOST_VARIABLE

from .crew import live_apart
from .flows import WORKFLOWS
from .gate import STORES, Gate, refuse_writes

LOOK_S = 0.1


async def work(url: str, grace_s: float) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, refuse_writes)
    async with buoy.open(url, workflows=WORKFLOWS, options=buoy.RunnerOptions(stop_grace_s=grace_s)) as app:
        print(f"ready {app.runner.id}", flush=True)
        while not stop.is_set() and app.runner.gone is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
        gone = app.runner.gone
    if gone is not None:
        print(f"gone, driving {len(app.runner.executions)}", flush=True)
    return 0 if gone is None else 1


def nursery(url: str, grace_s: float) -> None:
    # Nobody waits for the children: the kernel takes them away.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            devnull = os.open(os.devnull, os.O_RDWR)
            os.dup2(devnull, 0)
            os.dup2(devnull, 1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                asyncio.run(work(url, grace_s))
            finally:
                os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    if "--told" in sys.argv:
        sys.argv.remove("--told")
        for each in STORES:
            Gate().install(each)
    if "--apart" in sys.argv:
        sys.argv.remove("--apart")
        live_apart(os.environ[HOST_VARIABLE])
    if sys.argv[1] == "--nursery":
        nursery(sys.argv[2], 5.0)
    else:
        sys.exit(asyncio.run(work(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5.0)))
