"""Scenarios: one execution of the workflow from its start to its end, with a crash (or a cancel request) at one point.

Each has a store and a clock of its own, so that all of them begin alike. What the dropped processes still report is
collected when the scenario is over, and has no effect.
"""

from __future__ import annotations

import asyncio
import ctypes
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.engine.code.private_loop import _UNDROPPABLE
from buoy.engine.read_log import read_log
from buoy.host.clock import SystemClock
from buoy.ports.records import RunQuery
from buoy.testing.crashtest.gate import Point
from buoy.testing.crashtest.notes import Note, Notebook
from buoy.testing.crashtest.process import Job, Process
from buoy.testing.crashtest.scratch import DATA, LOGS, scratch
from buoy.testing.crashtest.watch import BodyWatch, watching
from buoy.testing.local_host import KnownDeaths, Shelf
from buoy.testing.skipping import SkippingClock

# One that dies, one that takes over; more only if the engine itself gives up.
_PROCESSES_MAX = 5
_RUNS_MAX = 1000


class Played(msgspec.Struct):
    """What one scenario has shown."""

    point: Point | None
    ended: str
    notes: list[Note]
    logs: dict[str, list[e.Event]]
    real_s: float = 0.0
    passed_s: float = 0.0


class Setting(msgspec.Struct, frozen=True):
    """What is the same for all scenarios of a test, besides the job."""

    store: str = "memory"
    stubs: Mapping[str, Any] = {}
    seed: int = 0


def play(job: Job, setting: Setting, point: Point | None, *, looks_at_code: bool = False) -> Played:
    """One scenario, in this process."""
    with scratch() as folder:
        return play_in(folder, job, setting, point, looks_at_code=looks_at_code)


def play_in(
    folder: Path, job: Job, setting: Setting, point: Point | None, *,
    looks_at_code: bool = False, processes_max: int = _PROCESSES_MAX,
) -> Played:  # fmt: skip
    """One scenario, in this process, with all that it stores in that folder."""
    book, real = Notebook(), SystemClock()
    watch = BodyWatch(book.add, real.monotonic, setting.stubs)
    watch.looks_at_code = looks_at_code
    began = real.monotonic()
    data = folder / DATA
    data.mkdir()
    with watching(watch), Shelf(setting.store, data) as shelf:
        clock, deaths, processes = SkippingClock(), KnownDeaths(), list[Process]()
        try:
            ended = "crashed"
            while ended == "crashed" and len(processes) < processes_max:
                number = len(processes) + 1
                seed_chance(setting.seed, point, number)
                here = point and point.of_process(number)
                process = Process(job, number, shelf, clock, watch, deaths, here, folder / LOGS)
                processes.append(process)
                ended = process.run()
                if ended == "crashed" and not watch.wait_for_threads():
                    ended = "stuck: a step in a thread that does not end"
                deaths.dead.add(RunnerId(process.name))
            logs = read_logs(shelf, clock)
        finally:
            _declare_dead(processes)
    return Played(point, ended, book.notes, logs, real.monotonic() - began, clock.passed_s)


def seed_chance(seed: int, point: Point | None, process: int) -> None:
    """Python's own chance is different in every process, as in life, and the same in every execution of the test."""
    vars(random)["_inst"].seed(chance_of(seed, point, process))


def chance_of(seed: int, point: Point | None, process: int) -> str:
    where = "reference" if point is None else f"{point.number} {point.phase}"
    return f"{seed} {where} {process}"


def read_logs(shelf: Shelf, clock: SkippingClock) -> dict[str, list[e.Event]]:
    """What a process that was not there reads from the store."""

    async def read() -> dict[str, list[e.Event]]:
        store = await shelf.open(clock)
        try:
            page = await store.find_runs(RunQuery(), None, _RUNS_MAX)
            ids = [record.document.run_id for record in page.runs]
            return {run_id: await read_log(store, RunId(run_id)) for run_id in ids}
        finally:
            await store.close()

    return asyncio.run(read())


def _declare_dead(processes: list[Process]) -> None:
    """Ends what still waits in dropped processes. Their clean-up has no effect any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for process in processes:
            if process.runner is not None:
                for execution in list(process.runner.executions.values()):
                    execution.detach()
                if process.runner.step_pool is not None:
                    process.runner.step_pool.close()
            _close_tasks(process)
            process.shell.drop()
    # Code that swallows its own end: Python would try to end it once more when the program ends, and hang.
    while _UNDROPPABLE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_UNDROPPABLE.pop()))
    asyncio.run(_close_stores(processes))
    for process in processes:
        process.loop.close()


def _close_tasks(process: Process) -> int:
    """Closes the coroutines of a dead loop. How many objected to it."""
    objections = 0
    asyncio._set_running_loop(process.loop)
    try:
        for task in process.loop.remains:
            coro = task.get_coro()
            try:
                if coro is not None:
                    coro.close()
            except BaseException:  # noqa: BLE001 - code that objects to being dropped has no say
                objections += 1
    finally:
        asyncio._set_running_loop(None)
    return objections


async def _close_stores(processes: list[Process]) -> None:
    for process in processes:
        for store in process.stores:
            await store.close()
