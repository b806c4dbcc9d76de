"""Rounds on PostgreSQL: a process with one store that plays a round of runs on demand.

Invariant: one store per process. Two stores in one process disturb each other's figures: the worker's processor time
per step differed by a fifth between two empty ones.

Usage: postgres_rounds.py URL SERVER_PID     each line of stdin is a number of runs, each answer one line of JSON
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from cpu_time import tree_cpu_s  # noqa: E402
from tests.postgres_server import Server, query  # noqa: E402

import buoy  # noqa: E402

STEPS = 5
# Of a run: its birth, and the end of each step.
COMMITS_PER_RUN = STEPS + 1
TIMEOUT_S = 60.0
_PAGES = "SELECT sum(blks_hit + blks_read)::bigint FROM pg_stat_database WHERE datname = current_database()"


@buoy.step
async def noop(n: int) -> int:
    return n


@buoy.workflow
async def few_steps(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await noop(number)
    return total


class Round(NamedTuple):
    """What one round of runs took, each per step: time, processor time here and of the server, pages touched."""

    wall_us: float
    worker_us: float
    server_us: float
    pages: float


class Player:
    """A process of its own that plays rounds on one store."""

    def __init__(self, server: Server, url: str) -> None:
        words = [sys.executable, str(Path(__file__).resolve()), url, str(server.pid)]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def play(self, runs: int) -> Round:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{runs}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process of the rounds has ended: {self._process.wait(TIMEOUT_S)}"
        return Round(*json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It ends with its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)


async def _play(app: Any, url: str, server_pid: int, runs: int) -> Round:
    def spent() -> tuple[float, float, float]:
        return perf_counter() * 1e6, tree_cpu_s(os.getpid()) * 1e6, tree_cpu_s(server_pid) * 1e6

    pages, before = _pages(url), spent()
    started = await asyncio.gather(*(app.start(few_steps, STEPS) for _ in range(runs)))
    await asyncio.gather(*(run.result() for run in started))
    took = [now - then for now, then in zip(spent(), before, strict=True)]
    return Round(*(each / (runs * STEPS) for each in (*took, _pages(url) - pages)))


def _pages(url: str) -> float:
    return float(query(url, _PAGES)[0][0])


async def _serve(url: str, server_pid: int) -> None:
    async with buoy.open(url, workflows=[few_steps]) as app:
        while line := await asyncio.to_thread(sys.stdin.readline):
            found = await _play(app, url, server_pid, int(line))
            sys.stdout.write(f"{json.dumps(found)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
