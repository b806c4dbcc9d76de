"""Speed tricks: what each one buys, by processor time with it and without it, interleaved.

Each measurement is a process of its own. A trick that is not worth a tenth of its job is removed from the engine.

Usage: speed_tricks.py [TRICK...] [--pairs N]      all tricks by default, 5 pairs each, on /dev/shm
"""

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import buoy_worker

import buoy
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.context import UNKNOWN
from buoy.engine.code import loop_context, private_loop
from buoy.engine.code.async_decider import AsyncDecider
from buoy.engine.run import ledger
from buoy.engine.services.step_tasks import StepTasks
from buoy.stores.sqlite import store as sqlite_store
from buoy.stores.sqlite.lanes import WriteLane

LARGE = list(range(20_000))


@buoy.step
async def large(i: int) -> list[int]:
    return LARGE


@buoy.workflow
async def large_results(n: int) -> int:
    return sum([len(await large(i)) for i in range(n)])


# ---- Without each trick --------------------------------------------------------------------------


def without_step_tasks() -> None:
    def add(self: Any, body: Any) -> None:
        async def execute() -> None:
            body.task = asyncio.current_task()
            try:
                await body.begin()
            except Exception as error:
                body.crashed(error)

        asyncio.get_running_loop().create_task(execute(), context=self._context.copy())

    StepTasks.add = add  # type: ignore[method-assign]


def without_inline_commits() -> None:
    sqlite_store.SqliteStore.commits_inline = property(lambda self: False)  # type: ignore[method-assign,assignment]


def without_inline_writes() -> None:
    WriteLane.write_now = lambda self, work: None  # type: ignore[method-assign]
    WriteLane.go_on_now = lambda self, values: None  # type: ignore[method-assign]


def without_one_statement() -> None:
    sqlite_store.going_on = lambda *given: None  # type: ignore[assignment]


def without_argument_structs() -> None:
    for each in (buoy_worker.noop, buoy_worker.steps_in_row):
        found = next(value for value in vars(each).values() if isinstance(value, Arguments))
        found._given = None


def without_recall() -> None:
    AsyncDecider.recall = lambda self, *call: UNKNOWN  # type: ignore[method-assign]


def without_lasting_hooks() -> None:
    class Entered(loop_context.RunningLoop):
        """Sets the hooks for async generators at each entry, and puts back those that were there."""

        def __enter__(self) -> None:
            self._hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(None, None)
            super().__enter__()

        def __exit__(self, *_: object) -> None:
            super().__exit__()
            sys.set_asyncgen_hooks(*self._hooks)

    private_loop.RunningLoop = Entered  # type: ignore[misc]


def without_proven_events() -> None:
    ledger._PROVEN = frozenset()


TRICKS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "step-tasks": (without_step_tasks, ("sequential", "concurrent")),
    "inline-commits": (without_inline_commits, ("sequential", "latency")),
    "inline-writes": (without_inline_writes, ("sequential", "latency")),
    "one-statement": (without_one_statement, ("sequential",)),
    "argument-structs": (without_argument_structs, ("sequential", "concurrent")),
    "recall": (without_recall, ("replay",)),
    "lasting-hooks": (without_lasting_hooks, ("sequential", "latency")),
    "proven-events": (without_proven_events, ("sequential", "large")),
}

# ---- One measurement, and all of them ------------------------------------------------------------


async def job(name: str, folder: Path) -> float:
    """The processor time of one job; of a replay without the run that it replays."""
    if name == "replay":
        return await replayed(15_000, folder)
    began = processor_s()
    await whole_job(name, folder)
    return processor_s() - began


async def whole_job(name: str, folder: Path) -> None:
    if name == "sequential":
        await buoy_worker.sequential(4_000, folder)
    elif name == "concurrent":
        await buoy_worker.concurrent(300, 5, folder)
    elif name == "latency":
        await buoy_worker.latency(700, folder)
    else:
        async with buoy.open(f"sqlite:///{folder}/large.db", workflows=[large_results]) as app:
            await (await app.start(large_results, 300)).result()


async def replayed(n: int, folder: Path) -> float:
    async with buoy_worker.open_app(folder) as app:
        run_id = buoy_worker.id_of(await buoy_worker.start(app, buoy_worker.steps_then_wait, n))
        while not buoy_worker.PASSES or buoy_worker.PASSES[-1].ended is None:
            await asyncio.sleep(0.02)
    async with buoy_worker.open_app(folder) as app:
        run = await buoy_worker.find(app, run_id)
        began = processor_s()
        await buoy_worker.signal(run)
        await buoy_worker.result(run)
        return processor_s() - began


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(trick: str | None, name: str) -> None:
    if trick is not None:
        TRICKS[trick][0]()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        print(asyncio.run(job(name, Path(folder))))


def measured(trick: str, name: str) -> float:
    words = [sys.executable, __file__, "--one", trick, name]
    return float(subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tricks", nargs="*", choices=[*TRICKS, []], default=[])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(None if options.one[0] == "none" else options.one[0], options.one[1])
        return
    for trick in options.tricks or TRICKS:
        for name in TRICKS[trick][1]:
            pairs = [(measured("none", name), measured(trick, name)) for _ in range(options.pairs)]
            ratios = [without / with_it for with_it, without in pairs]
            print(f"{trick:18}{name:12}{statistics.median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
