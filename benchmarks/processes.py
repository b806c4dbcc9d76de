"""Processes: `buoy worker --processes 1` beside `--processes 2`, in turns, on PostgreSQL or SQLite.

Invariants: each pool has a store of its own and stays up, so that no start of a process is measured. The runs of all
rounds exist before, and are parked; a round makes its share of them due. The first round of each pool warms up.
Beside the ratio of the rates it prints the processor time of workers and server, and the ratio that it allows: two
processes and the server cannot be quicker than all cores that do nothing else.

Usage: python benchmarks/processes.py [--store postgres|sqlite] [--rounds R] [--runs N] [--steps S]
"""

import argparse
import asyncio
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import psycopg  # noqa: E402
from buoy_worker import steps_in_row  # noqa: E402
from cpu_time import tree_cpu_s  # noqa: E402
from tests.postgres_server import Server, start_server  # noqa: E402

import buoy  # noqa: E402

HERE = Path(__file__).resolve().parent
FLOWS = HERE / "buoy_worker.py"
TARGET = 1.5
LOOK_S = 0.02
SETTLE_S = 3.0
TIMEOUT_S = 300.0
# Processor time is given for so many steps.
CPU_STEPS = 10_000
# Below zero: due, whatever the clock says.
DUE_AT_ONCE = -(2.0**31)
Execute = Callable[[str], list[tuple[Any, ...]]]


class Side(NamedTuple):
    """A pool and its store."""

    processes: int
    url: str
    execute: Execute
    pool: subprocess.Popen[bytes]


class Round(NamedTuple):
    """What one round took; processor time in seconds for `CPU_STEPS` steps."""

    steps_per_s: float
    workers_cpu_s: float
    server_cpu_s: float


@contextmanager
def side_of(url: str, execute: Execute, processes: int, args: argparse.Namespace) -> Iterator[Side]:
    """A pool that is ready, and whose runs are parked."""
    asyncio.run(_fill(url, args.rounds, args.runs, args.steps))
    execute("UPDATE tasks SET due_at = NULL")
    words = [sys.executable, "-m", "buoy", "worker", str(FLOWS), "--processes", str(processes), "--json", "--no-specs"]
    # The first whole sweep of each worker comes once in five minutes, and would fall into the measurement or not.
    words += ["--start-delay", "1h"]
    env = {**os.environ, "BUOY_STORE": url, "PYTHONPATH": str(HERE)}
    with tempfile.NamedTemporaryFile("w+") as out:
        pool = subprocess.Popen(words, stdout=out, env=env, stdin=subprocess.DEVNULL)
        try:
            side = Side(processes, url, execute, pool)
            _wait(lambda: Path(out.name).read_text().count("worker_ready") >= processes, side)
            yield side
        finally:
            pool.send_signal(signal.SIGTERM)
            pool.wait(TIMEOUT_S)


async def _fill(url: str, rounds: int, runs: int, steps: int) -> None:
    async with buoy.connect(url) as client:
        for number in range(rounds):
            await asyncio.gather(*(client.start_as(f"b{number}-{n}", steps_in_row, steps) for n in range(runs)))


def one_round(side: Side, server: Server | None, number: int, runs: int, steps: int) -> Round:
    mine = f"run_id LIKE 'b{number}-%'"
    workers_s, server_s = tree_cpu_s(side.pool.pid), _cpu_of(server)
    began = asyncio.run(_begin(side, mine, f"b{number}-more", steps))
    _wait(lambda: not side.execute(f"SELECT 1 FROM tasks WHERE {mine} LIMIT 1"), side)
    share = CPU_STEPS / ((runs + 1) * steps)
    return Round(
        (runs + 1) * steps / (perf_counter() - began),
        (tree_cpu_s(side.pool.pid) - workers_s) * share,
        (_cpu_of(server) - server_s) * share,
    )


async def _begin(side: Side, mine: str, more: str, steps: int) -> float:
    """Makes the runs due, and returns when they were. What it takes to connect and to update them is not the pool's."""
    async with buoy.connect(side.url) as client:
        side.execute(f"UPDATE tasks SET due_at = {DUE_AT_ONCE} WHERE {mine}")
        began = perf_counter()
        # One more run, so that the workers hear of it at once.
        await client.start_as(more, steps_in_row, steps)
        return began


def _cpu_of(server: Server | None) -> float:
    return 0.0 if server is None else tree_cpu_s(server.pid)


def _wait(holds: Callable[[], bool], side: Side) -> None:
    ends = perf_counter() + TIMEOUT_S
    while not holds():
        assert side.pool.poll() is None, "the pool has ended"
        assert perf_counter() < ends, "the pool takes too long"
        sleep(LOOK_S)


@contextmanager
def stores(kind: str) -> Iterator[tuple[Server | None, list[tuple[str, Execute]]]]:
    """Two stores of that kind, each with a session for statements on its tables."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sqlite":
            files = [Path(folder, f"{number}.db") for number in (1, 2)]
            yield None, [(f"sqlite:///{file}", _of_file(file)) for file in files]
            return
        server = start_server(18)
        try:
            yield server, [(server.url(name), _of_schema(server, name)) for name in ("one", "two")]
        finally:
            server.stop()


def _of_file(file: Path) -> Execute:
    def execute(statement: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(file, timeout=TIMEOUT_S) as session:
            return session.execute(statement).fetchall()

    return execute


def _of_schema(server: Server, schema: str) -> Execute:
    address = server.url("x").partition("&schema")[0]
    session = psycopg.connect(address, autocommit=True, options=f"-c search_path={schema}")

    def execute(statement: str) -> list[tuple[Any, ...]]:
        found = session.execute(statement.encode())
        return found.fetchall() if found.description is not None else []

    return execute


def measure(args: argparse.Namespace) -> tuple[list[Round], list[Round]]:
    found: tuple[list[Round], list[Round]] = ([], [])
    with (
        stores(args.store) as (server, (first, second)),
        side_of(*first, 1, args) as one,
        side_of(*second, 2, args) as two,
    ):
        sleep(SETTLE_S)
        for number in range(args.rounds):
            for side in (one, two) if number % 2 else (two, one):
                took = one_round(side, server, number, args.runs, args.steps)
                words = (
                    f"{side.processes} process(es): {took.steps_per_s:.0f} steps/s, workers {took.workers_cpu_s:.2f} s"
                )
                sys.stderr.write(f"{words}, server {took.server_cpu_s:.2f} s, load {os.getloadavg()[0]:.1f}\n")
                if number:  # the first one warms up
                    found[side.processes - 1].append(took)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=5)
    found = measure(parser.parse_args())
    one, two = (Round(*map(statistics.median, zip(*rounds, strict=True))) for rounds in found)
    ratio = two.steps_per_s / one.steps_per_s
    cores = os.cpu_count() or 1
    shares = ((two.workers_cpu_s + two.server_cpu_s) / cores, two.workers_cpu_s / 2, two.server_cpu_s / cores)
    possible = CPU_STEPS / one.steps_per_s / max(shares)
    verdict = "met" if ratio >= TARGET else "MISSED"
    sys.stdout.write(
        f"1: {one.steps_per_s:.0f} steps/s; processor time of workers {one.workers_cpu_s:.2f} s, server "
        f"{one.server_cpu_s:.2f} s for {CPU_STEPS} steps\n"
        f"2: {two.steps_per_s:.0f} steps/s; processor time of workers {two.workers_cpu_s:.2f} s, server "
        f"{two.server_cpu_s:.2f} s\n"
        f"2 processes / 1: {ratio:.2f} (target {TARGET:g}, {verdict}); {cores} cores allow {possible:.2f}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
