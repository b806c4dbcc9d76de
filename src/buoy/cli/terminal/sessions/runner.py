"""One `buoy runner`: runs jobs until its run has ended, it is stopped, or its time is over, and reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from buoy.cli.terminal.lines.reports import ReportLines
from buoy.cli.terminal.program import Exit
from buoy.cli.terminal.sessions.worker import Reporter
from buoy.cli.terminal.signals import Stop, stop_signals
from buoy.core.batch.resources import Capacity
from buoy.core.ids import check_run_id
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import Status
from buoy.errors import Unavailable
from buoy.operations.batch.runner import JobRunner, runner_options
from buoy.operations.slurm.places import declare_predecessors_dead
from buoy.operations.workers.worker import hear
from buoy.wiring.local_worker import open_job_runner

_LOOK_S = 0.5
_SETTLE_LOOKS = 60
_CODES = {Status.COMPLETED: Exit.OK, Status.FAILED: Exit.FAILED, Status.CANCELLED: Exit.CANCELLED}


async def run_jobs(
    url: str,
    run_id: str,
    capacity: Callable[[Capacity], Capacity],
    nodes: Sequence[str] | None,
    out: TextIO,
    *,
    as_json: bool,
) -> tuple[int, Exit]:
    """How many lots still execute at the end, and the exit code."""
    checked = check_run_id(run_id)
    async with open_job_runner(url, capacity, nodes, options=runner_options()) as (worker, room):
        report = Reporter(ReportLines(out, worker.clock.now, as_json=as_json))
        hear(worker.runner, worker.sweeper, report)
        jobs = JobRunner(worker.client(), worker.runner, room, checked, lambda text: report.tell("note", text))
        left, document = 0, None
        with stop_signals() as stop:
            try:
                await worker.start(schedules=False)
                await declare_predecessors_dead(worker.store, worker.info)
                found = room.capacity
                size = f"{found.cpus} cpus, {found.memory_bytes / 2**30:.1f} GiB, {found.gpus} gpus"
                if found.nodes > 1:
                    size += f" on each of {found.nodes} nodes"
                report.tell("started", f"runner {worker.info.id} has {size} for {checked}", runner=worker.info.id)
                document = await _until_end(jobs, stop, report)
            finally:
                room.close()
                if stop.name is not None:
                    report.tell("stopping", f"{stop.name}: stopping {room.running} jobs", signal=stop.name)
                left = await worker.stop(stop.name or "done", 0.0)
        if document is not None and document.pause is not None:
            why = document.pause.detail or document.pause.reason
            text = f"{checked} is paused: {why}; see `buoy why {checked}`, then start runners again"
            report.tell("paused", text, reason=document.pause.reason)
        return left, _code(document)


async def _until_end(jobs: JobRunner, stop: Stop, report: Reporter) -> Document | None:
    asked = asyncio.ensure_future(stop.asked.wait())
    away, misfits = False, set[str]()
    try:
        while not asked.done():
            document = await _look(jobs)
            for queue in jobs.misfits.keys() - misfits:
                report.tell("misfit", f"jobs of {queue} do not fit here: {jobs.misfits[queue]}", queue=queue)
                misfits.add(queue)
            if document is None and not away:
                report.tell("away", "the store does not answer; jobs that run may end, and no other begins")
            away = document is None
            if document is not None and jobs.done(document):
                if document.ended:
                    await _settle(jobs, asked)
                return document
            if jobs.out_of_time:
                stop.ask("time-left")
                return None
            await asyncio.wait([asked], timeout=_LOOK_S)
        return None
    finally:
        asked.cancel()


async def _look(jobs: JobRunner) -> Document | None:
    """None: the store does not answer now."""
    try:
        return await jobs.look()
    except Unavailable:
        return None


async def _settle(jobs: JobRunner, asked: asyncio.Future[Any]) -> None:
    """Ends lots that the run left behind. Bounded: a lot whose cancellation is late is left to the next runner."""
    for _ in range(_SETTLE_LOOKS):
        if asked.done() or not await jobs.settle():
            return
        await asyncio.wait([asked], timeout=_LOOK_S)


def _code(document: Document | None) -> Exit:
    if document is None:
        return Exit.OK
    return _CODES.get(document.status, Exit.NOT_ENDED)
