"""Buoy worker: one measurement of Buoy on SQLite, or on the store `BENCH_STORE`, in a process of its own.

The calls that name Buoy's API stand in the first section and nowhere else.

Usage: buoy_worker.py --dir DIR sequential N | concurrent RUNS STEPS | latency N | replay N | waiting N [--evict]
"""

import argparse
import asyncio
import os
import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from stopwatch import Reading, Stopwatch, latency_reading, report

import buoy

# ---- Buoy's API --------------------------------------------------------------------------------


def open_app(folder: Path, options: buoy.RunnerOptions | None = None) -> Any:
    """Store, journal and in-process runner, with Buoy's defaults: WAL and a sync at every commit."""
    workflows = (steps_in_row, steps_then_wait, wait_at_once)
    url = os.environ.get("BENCH_STORE") or f"sqlite:///{folder / 'buoy.db'}"
    return buoy.open(url, workflows=workflows, options=options)


def waiting_options(n: int, *, evict: bool) -> buoy.RunnerOptions:
    """Options for `open_app` that keep all of `n` waiting runs in memory, or as good as none of them."""
    return buoy.RunnerOptions(waiting_runs_max=1 if evict else n)


async def start(app: Any, workflow: Any, *args: int) -> Any:
    """A run, durable when this returns."""
    return await app.start(workflow, *args)


async def result(run: Any) -> int:
    return await run.result()


async def signal(run: Any) -> None:
    await run.signal("go", 1)


async def find(app: Any, run_id: str) -> Any:
    """The handle of a run that another process, or another life of this one, has started."""
    return await app.get(run_id)


def id_of(run: Any) -> str:
    return run.id


@buoy.step
async def noop(i: int) -> int:
    return i


@buoy.step
async def counted(i: int) -> int:
    EXECUTED.append(i)
    return i


@buoy.workflow
async def steps_in_row(n: int) -> int:
    return sum([await noop(i) for i in range(n)])


@buoy.workflow
async def steps_then_wait(n: int) -> int:
    PASSES.append(Pass(perf_counter()))
    total = sum([await counted(i) for i in range(n)])
    PASSES[-1].ended = perf_counter()
    return total + await buoy.wait_signal("go")


@buoy.workflow
async def wait_at_once(i: int) -> int:
    ARRIVED.add(i)
    return i + await buoy.wait_signal("go")


# ---- What the workflows above leave behind for the measurements below ---------------------------


class Pass:
    """One execution of a workflow's code, the first one or a replay."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended: float | None = None


PASSES: list[Pass] = []
EXECUTED: list[int] = []
ARRIVED: set[int] = set()

# ---- Measurements ------------------------------------------------------------------------------


async def sequential(n: int, folder: Path) -> Reading:
    """One run of `n` steps, one after the other."""
    async with open_app(folder) as app:
        watch = Stopwatch()
        found = await result(await start(app, steps_in_row, n))
        rate = watch.rate(n)
    assert found == _sum(n), f"expected {_sum(n)}, found {found}"
    return {"steps_per_s": rate, "steps": n}


async def concurrent(runs: int, steps: int, folder: Path) -> Reading:
    """`runs` runs of `steps` steps, all started before the first result is asked for."""
    async with open_app(folder) as app:
        watch = Stopwatch()
        handles = await asyncio.gather(*(start(app, steps_in_row, steps) for _ in range(runs)))
        found = await asyncio.gather(*(result(handle) for handle in handles))
        rate = watch.rate(runs * steps)
    assert found == [_sum(steps)] * runs, "a run is missing or gave a wrong result"
    return {"steps_per_s": rate, "runs": runs, "steps": steps}


async def latency(n: int, folder: Path) -> Reading:
    """`n` runs of one step, one after the other, each from its start to its result."""
    samples = []
    async with open_app(folder) as app:
        for _ in range(n):
            began = perf_counter()
            await result(await start(app, steps_in_row, 1))
            samples.append(perf_counter() - began)
    return latency_reading(samples)


async def replay(n: int, folder: Path) -> Reading:
    """A run of `n` finished steps that a new runner takes up: its steps are remembered, not run.

    `steps_per_s` counts everything from the message that wakes the run to the last remembered step: claiming it,
    reading its log and folding it are in it. `code_steps_per_s` counts the workflow code alone.
    """
    async with open_app(folder) as app:
        run_id = id_of(await start(app, steps_then_wait, n))
        await _until(lambda: bool(PASSES) and PASSES[-1].ended is not None)
    async with open_app(folder) as app:
        run = await find(app, run_id)
        began = perf_counter()
        await signal(run)
        found = await result(run)
    assert found == _sum(n) + 1, f"expected {_sum(n) + 1}, found {found}"
    assert len(PASSES) >= 2, "the run was never replayed"
    assert len(EXECUTED) == n, f"expected {n} executions of the step, found {len(EXECUTED)}: not all were remembered"
    last = PASSES[-1]
    assert last.ended is not None
    return {
        "steps_per_s": n / (last.ended - began),
        "code_steps_per_s": n / (last.ended - last.began),
        "steps": n,
    }


async def waiting(n: int, idle_s: float, folder: Path, *, evict: bool) -> Reading:
    """What `n` runs cost that wait for a signal: CPU while nothing happens, and memory."""
    async with open_app(folder, waiting_options(n, evict=evict)) as app:
        before_mb = _rss_mb()
        runs = await _start_all_waiting(app, n)
        await _until(lambda: _has_swept(app))
        await _calm_down()
        cpu_before_s, watch = _cpu_s(), Stopwatch()
        await asyncio.sleep(idle_s)
        cpu_percent = 100 * (_cpu_s() - cpu_before_s) / watch.elapsed_s()
        after_mb = _rss_mb()
        await _check_that_they_wake(runs)
    return {
        "cpu_percent": cpu_percent,
        "rss_mb": after_mb,
        "rss_before_mb": before_mb,
        "kb_per_run": (after_mb - before_mb) * 1024 / n,
        "runs": n,
    }


async def _start_all_waiting(app: Any, n: int) -> list[Any]:
    """Handles of the first and the last ones only, so that handles do not count as memory of the runs."""
    sample: list[Any] = []
    for first in range(0, n, 500):
        batch = range(first, min(first + 500, n))
        handles = await asyncio.gather(*(start(app, wait_at_once, i) for i in batch))
        sample += [handles[0], handles[-1]]
    await _until(lambda: len(ARRIVED) == n)
    return sample


async def _until(holds: Callable[[], bool]) -> None:
    # By looking, because workflow code must not touch what belongs to this loop. `bench.py` bounds the time.
    while not holds():
        await asyncio.sleep(0.02)


def _has_swept(app: Any) -> bool:
    """The first whole sweep comes soon after the start, the next one five minutes later: it is no part of idling."""
    health = app.runner.sweep_health()
    return health is not None and health.at is not None


async def _calm_down() -> None:
    """Until a second goes by nearly without work (evictions, checkpoints), for 30 seconds at most."""
    for _ in range(30):
        cpu_before_s = _cpu_s()
        await asyncio.sleep(1)
        if _cpu_s() - cpu_before_s < 0.02:
            return


async def _check_that_they_wake(runs: list[Any]) -> None:
    """Idle runs that cannot wake up would be cheap, and worthless."""
    for run in runs:
        await signal(run)
    await asyncio.gather(*(result(run) for run in runs))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS; this measurement needs Linux")


def _sum(n: int) -> int:
    return n * (n - 1) // 2


def main() -> None:
    args = _arguments()
    ways: dict[str, Callable[[], Any]] = {
        "sequential": lambda: sequential(args.n, args.dir),
        "concurrent": lambda: concurrent(args.runs, args.steps, args.dir),
        "latency": lambda: latency(args.n, args.dir),
        "replay": lambda: replay(args.n, args.dir),
        "waiting": lambda: waiting(args.n, args.idle_s, args.dir, evict=args.evict),
    }
    report(asyncio.run(ways[args.what]()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One measurement of Buoy on SQLite.")
    parser.add_argument("--dir", type=Path, required=True, help="where the database goes")
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("sequential", "latency", "replay"):
        commands.add_parser(name).add_argument("n", type=int)
    many = commands.add_parser("concurrent")
    many.add_argument("runs", type=int)
    many.add_argument("steps", type=int)
    idle = commands.add_parser("waiting")
    idle.add_argument("n", type=int)
    idle.add_argument("--evict", action="store_true", help="let the waiting runs leave the memory")
    idle.add_argument("--idle-s", type=float, default=10.0, help="for how long the CPU is watched")
    return parser.parse_args()


if __name__ == "__main__":
    main()
