"""A worker as a process of its own: `python -m tests.crash.worker URL`. SIGTERM stops it gracefully.

With `--fork-server` it forks a worker for each line on its standard input and answers with the PID. Imports take no
time then, so that many can be killed in a short time. With `--told` it reports every acknowledged commit to the
witness. With `--apart` it counts as on a machine of its own (BUOY_HOST), where others know only its silence. When it is
declared dead, it says so and ends with 1, as `buoy worker` does. After SIGUSR1 it can write no file. `BUOY_TEST_SKEW_S`
sets its clock wrong; `BUOY_TEST_SILENT_S` and `BUOY_TEST_SLACK_S` are for `--apart`. If a store gives no answer at the
start, it asks again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import traceback
from contextlib import suppress

import buoy
from buoy.config import HOST_VARIABLE
from buoy.errors import Unavailable
from buoy.host.clock import SystemClock

from .case_process import SILENT_S, live_apart
from .flows import WORKFLOWS
from .gate import ALL_STORES, Gate, refuse_writes

LOOK_S = 0.1


async def work(url: str, grace_s: float) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, refuse_writes)
    while not stop.is_set():
        try:
            return await drive(url, grace_s, stop)
        except Unavailable:
            await asyncio.sleep(LOOK_S)
    return 0


async def drive(url: str, grace_s: float, stop: asyncio.Event) -> int:
    async with buoy.open(url, workflows=WORKFLOWS, options=buoy.RunnerOptions(stop_grace_s=grace_s)) as app:
        print(f"ready {app.runner.id}", flush=True)
        while not stop.is_set() and app.runner.gone is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
        gone = app.runner.gone
    if gone is not None:
        print(f"gone, driving {len(app.runner.executions)}", flush=True)
    return 0 if gone is None else 1


def set_clock_wrong(by_s: float) -> None:
    """Every reading of the wall clock in this process is off by so much."""
    SystemClock.now = staticmethod(lambda: time.time() + by_s)  # type: ignore[method-assign]


def fork_server(url: str, grace_s: float) -> None:
    # No process waits for the children: the kernel takes them away.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            devnull = os.open(os.devnull, os.O_RDWR)
            os.dup2(devnull, 0)
            os.dup2(devnull, 1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                code = asyncio.run(work(url, grace_s))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)


if __name__ == "__main__":
    if "--told" in sys.argv:
        sys.argv.remove("--told")
        for each in ALL_STORES:
            Gate().install(each)
    if "--apart" in sys.argv:
        sys.argv.remove("--apart")
        slack = os.environ.get("BUOY_TEST_SLACK_S")
        silent_s = float(os.environ.get("BUOY_TEST_SILENT_S", SILENT_S))
        live_apart(os.environ[HOST_VARIABLE], silent_s, None if slack is None else float(slack))
    if "BUOY_TEST_SKEW_S" in os.environ:
        set_clock_wrong(float(os.environ["BUOY_TEST_SKEW_S"]))
    if sys.argv[1] == "--fork-server":
        fork_server(sys.argv[2], 5.0)
    else:
        sys.exit(asyncio.run(work(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5.0)))
