"""A worker as a process of its own: `python -m tests.crash.worker URL`. SIGTERM stops it gracefully.

With `--nursery` it forks a worker for each line on its standard input and answers with the PID: no time is lost with
imports, so that many can be killed in a short time. With `--told` the witness is told of every commit that a store has
acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import buoy

from .flows import WORKFLOWS
from .gate import STORES, Gate


async def work(url: str, grace_s: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with buoy.open(url, workflows=WORKFLOWS, options=buoy.RunnerOptions(stop_grace_s=grace_s)) as app:
        print(f"ready {app.runner.id}", flush=True)
        await stop.wait()


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
    if sys.argv[1] == "--nursery":
        nursery(sys.argv[2], 5.0)
    else:
        asyncio.run(work(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5.0))
