"""DBOS worker: one measurement of DBOS Transact on SQLite, or on the database `BENCH_STORE`, in its own environment.

Everything is DBOS's own default - its journal mode, its sync level, its pool, its serializer - except what a flavour
names. Each measurement has several flavours, because DBOS can do the same work in several ways; the default is the
fastest one that works, and README.md has the numbers of all of them.

Usage: dbos_worker.py --dir DIR [--flavour F] [--threads T] [--wal] sequential N | concurrent RUNS STEPS | latency N
"""

import argparse
import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from dbos import DBOS, DBOSConfig
from stopwatch import Reading, Stopwatch, latency_reading, report

QUEUE = "bench"
# Its default of one second would measure the poll, not the work.
QUEUE_POLL_S = 0.05
# Of DBOS's executor, for `concurrent` by threads only. Its default of 64 makes 64 threads fight for SQLite's one
# write lock, and loses a quarter. 1, 2 and 3 were equal within the noise of two cores; runs still overlap with 2.
THREADS_FASTEST = 2


@DBOS.step()
def noop(i: int) -> int:
    return i


@DBOS.step()
async def noop_async(i: int) -> int:
    return i


@DBOS.workflow()
def steps_in_row(n: int) -> int:
    return sum([noop(i) for i in range(n)])


@DBOS.workflow()
async def steps_in_row_async(n: int) -> int:
    return sum([await noop_async(i) for i in range(n)])


def sequential(n: int, flavour: str) -> Reading:
    """One workflow of `n` steps, one after the other."""
    ways: dict[str, Callable[[], int]] = {
        "sync": lambda: steps_in_row(n),
        "async": lambda: asyncio.run(steps_in_row_async(n)),
    }
    watch = Stopwatch()
    found = ways[flavour]()
    rate = watch.rate(n)
    assert found == _sum(n), f"expected {_sum(n)}, found {found}"
    return {"steps_per_s": rate, "steps": n}


def concurrent(runs: int, steps: int, flavour: str) -> Reading:
    """`runs` workflows of `steps` steps, all started before the first result is asked for."""
    ways: dict[str, Callable[[], list[int]]] = {
        "threads": lambda: _by_threads(runs, steps),
        "queue": lambda: _by_queue(runs, steps),
        "gather": lambda: asyncio.run(_by_gather(runs, steps)),
        "start-async": lambda: asyncio.run(_by_start_async(runs, steps)),
        "queue-async": lambda: asyncio.run(_by_queue_async(runs, steps)),
    }
    watch = Stopwatch()
    found = ways[flavour]()
    rate = watch.rate(runs * steps)
    assert found == [_sum(steps)] * runs, "a run is missing or gave a wrong result"
    return {"steps_per_s": rate, "runs": runs, "steps": steps}


def _by_threads(runs: int, steps: int) -> list[int]:
    handles = [DBOS.start_workflow(steps_in_row, steps) for _ in range(runs)]
    return [handle.get_result() for handle in handles]


def _by_queue(runs: int, steps: int) -> list[int]:
    DBOS.register_queue(QUEUE, polling_interval_sec=QUEUE_POLL_S)
    handles = [DBOS.enqueue_workflow(QUEUE, steps_in_row, steps) for _ in range(runs)]
    return [handle.get_result(polling_interval_sec=QUEUE_POLL_S) for handle in handles]


async def _by_gather(runs: int, steps: int) -> list[int]:
    return await asyncio.gather(*(steps_in_row_async(steps) for _ in range(runs)))


async def _by_start_async(runs: int, steps: int) -> list[int]:
    starts = (DBOS.start_workflow_async(steps_in_row_async, steps) for _ in range(runs))
    handles = await asyncio.gather(*starts)
    return await asyncio.gather(*(handle.get_result() for handle in handles))


async def _by_queue_async(runs: int, steps: int) -> list[int]:
    await DBOS.register_queue_async(QUEUE, polling_interval_sec=QUEUE_POLL_S)
    starts = (DBOS.enqueue_workflow_async(QUEUE, steps_in_row_async, steps) for _ in range(runs))
    handles = await asyncio.gather(*starts)
    # One second, DBOS's default: 2,000 handles that poll more often slow the work down.
    return await asyncio.gather(*(handle.get_result() for handle in handles))


def latency(n: int, flavour: str) -> Reading:
    """`n` workflows of one step, one after the other, each from its start to its result."""
    ways: dict[str, Callable[[], list[float]]] = {
        "direct": lambda: [_timed(lambda: steps_in_row(1)) for _ in range(n)],
        "start": lambda: [_timed(lambda: DBOS.start_workflow(steps_in_row, 1).get_result()) for _ in range(n)],
        "direct-async": lambda: asyncio.run(_timed_all(n, lambda: steps_in_row_async(1))),
        "start-async": lambda: asyncio.run(_timed_all(n, _start_and_wait_async)),
    }
    return latency_reading(ways[flavour]())


def _timed(call: Callable[[], int]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


async def _timed_all(n: int, call: Callable[[], Coroutine[Any, Any, int]]) -> list[float]:
    samples = []
    for _ in range(n):
        began = perf_counter()
        await call()
        samples.append(perf_counter() - began)
    return samples


async def _start_and_wait_async() -> int:
    handle = await DBOS.start_workflow_async(steps_in_row_async, 1)
    return await handle.get_result()


def _sum(n: int) -> int:
    return n * (n - 1) // 2


# The first of each is the fastest one, and the default. Tried here with DBOS 3.3.0 on two cores, in steps/s:
#   sequential: sync 381, async 265.
#   concurrent 2000 x 5: threads 309 and 280 (2 threads), 272 (1), 262 and 297 (3), 230 (64); queue 238; gather 195
#   (2 threads), 170 (64); start-async 170; queue-async 160. Direct calls from a pool of 2 of our own: 286.
#   latency p50/p99 in ms: direct 7.6/12.0, start 8.3/14.1, direct-async 9.8/16.3, start-async 9.3/17.6.
FLAVOURS = {
    "sequential": ("sync", "async"),
    "concurrent": ("threads", "gather", "start-async", "queue", "queue-async"),
    "latency": ("direct", "start", "direct-async", "start-async"),
}


def main() -> None:
    args = _arguments()
    path = args.dir / "dbos.sqlite"
    if args.wal:
        _set_wal(path)
    _launch(path, args.threads)
    try:
        reading = _measure(args)
    finally:
        DBOS.destroy()
    report({**reading, "flavour": args.flavour, "threads": args.threads or "default", **_settings(path)})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One measurement of DBOS on SQLite.")
    parser.add_argument("--dir", type=Path, required=True, help="where the database goes")
    parser.add_argument("--flavour", help="one of several ways; the fastest one if not given")
    parser.add_argument("--threads", type=int, help="max_executor_threads of DBOS; 0 leaves its default of 64")
    parser.add_argument("--wal", action="store_true", help="not DBOS's default: put the database file in WAL mode")
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("sequential").add_argument("n", type=int)
    many = commands.add_parser("concurrent")
    many.add_argument("runs", type=int)
    many.add_argument("steps", type=int)
    commands.add_parser("latency").add_argument("n", type=int)
    args = parser.parse_args()
    args.flavour = args.flavour or FLAVOURS[args.what][0]
    if args.flavour not in FLAVOURS[args.what]:
        parser.error(f"{args.what} has the flavours {', '.join(FLAVOURS[args.what])}; found {args.flavour}")
    if args.threads is None and args.flavour == "threads":
        args.threads = THREADS_FASTEST
    return args


def _set_wal(path: Path) -> None:
    # The mode stays with the file, and DBOS never sets it.
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _launch(path: Path, threads: int | None) -> None:
    # The one setting that is ours everywhere: no log lines, which would cost DBOS time.
    url = os.environ.get("BENCH_STORE") or f"sqlite:///{path}"
    config: DBOSConfig = {"name": "bench-app", "system_database_url": url, "log_level": "ERROR"}
    if threads:
        config["max_executor_threads"] = threads
    DBOS(config=config)
    DBOS.launch()


def _measure(args: argparse.Namespace) -> Reading:
    if args.what == "sequential":
        return sequential(args.n, args.flavour)
    if args.what == "concurrent":
        return concurrent(args.runs, args.steps, args.flavour)
    return latency(args.n, args.flavour)


def _settings(path: Path) -> Reading:
    if "BENCH_STORE" in os.environ:
        return {"dbos": version("dbos")}
    connection = sqlite3.connect(path)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    return {"dbos": version("dbos"), "journal_mode": mode, "sqlite": sqlite3.sqlite_version}


if __name__ == "__main__":
    main()
