"""One worker of `buoy worker`: drives runs until it is stopped, or until nothing is left to do, and reports it.

Apart from the command: the parent of several workers does not load the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import TextIO

from buoy.cli.terminal.lines.reports import ReportLines
from buoy.cli.terminal.signals import Stop, stop_signals
from buoy.config import configured_store
from buoy.core.durations import in_words
from buoy.core.limits import PARENT_ENDED_MARGIN_S, UNCLEAR_PAUSE_MAX_S, UNCLEAR_TRIES_MAX
from buoy.core.log.wording import counted
from buoy.errors import Unavailable
from buoy.operations.workers.worker import (
    EndedRun,
    PausedRun,
    TakenRun,
    WorkerOrder,
    hear,
    runs_left_when_idle,
    stuck_runs,
)
from buoy.wiring.local_worker import open_worker
from buoy.wiring.worker import Worker
from buoy.wiring.worker_pool import ParentProcess, pool_clock

_LOOK_S = 0.2
_OPEN_PAUSE_S = 0.5
_CAUSES = {
    "created": "new",
    "woken": "woken",
    "taken_over": "taken over",
    "interrupted": "given back by a stopped runner",
    "resumed": "resumed",
    "requested": "asked for",
}


class Reporter:
    """Says what the worker does, one line each."""

    def __init__(self, lines: ReportLines) -> None:
        self.tell = lines.tell
        self._trouble = ""

    def taken(self, run: TakenRun) -> None:
        why = _CAUSES.get(run.cause, run.cause)
        who = f" from {run.evidence['runner']}" if run.evidence.get("runner") else ""
        proof = run.evidence.get("proof") or run.evidence.get("orphan")
        text = f"took {run.run_id} ({run.workflow}): {why}{who}{f' ({proof})' if proof else ''}"
        self.tell("taken", text, run_id=run.run_id, workflow=run.workflow, cause=run.cause, evidence=run.evidence)

    def trouble(self, text: str) -> None:
        """The same one again and again is said once."""
        if text != self._trouble:
            self._trouble = text
            self.tell("trouble", f"trouble: {text}", trouble=text)

    def trouble_over(self, text: str) -> None:
        """Tells the end once, however many loops notice it. The same trouble then counts as new."""
        if self._trouble:
            self._trouble = ""
            self.tell("trouble_over", text)

    def paused(self, run: PausedRun) -> None:
        why = f"{run.reason}{f': {run.detail}' if run.detail else ''}"
        text = f"paused {run.run_id} ({run.workflow}): {why}"
        self.tell("paused", text, run_id=run.run_id, reason=run.reason, detail=run.detail)

    def ended(self, run: EndedRun) -> None:
        why = "" if run.error is None else f": {run.error}"
        self.tell("ended", f"{run.run_id} {run.status}{why}", run_id=run.run_id, status=run.status)


async def work(
    order: WorkerOrder,
    store: str | None,
    out: TextIO,
    *,
    as_json: bool,
    member: tuple[int, ParentProcess] | None = None,
) -> tuple[int, str | None]:
    """How many runs still execute at the end, and why others declared this worker gone, if they did.

    `member`: which worker of a pool this is, and how it hears its parent.
    """
    number, parent = (None, None) if member is None else member
    report = Reporter(ReportLines(out, pool_clock().now, as_json=as_json, process=number))
    with stop_signals() as stop:
        if parent is not None:
            parent.listen(stop.ask, end_within_s=order.grace_s + PARENT_ENDED_MARGIN_S)
        async with AsyncExitStack() as opened:
            url = configured_store(store)

            async def open_once() -> Worker:
                found = open_worker(url, order.registry, queues=order.queues, options=order.options)
                return await opened.enter_async_context(found)

            process = await _patiently(open_once, order, stop, report)
            if process is None:
                left, gone = 0, None
            else:
                left, gone = await _drive(process, order, stop, report, parent), process.runner.gone
    if left:
        note = f"still executing: {counted(left, 'run')}, to be taken over when this process has ended"
        report.tell("left", note, runs=left)
    report.tell("stopped", "stopped", signal=stop.name)
    return left, gone


async def _patiently(
    once: Callable[[], Awaitable[Worker]], order: WorkerOrder, stop: Stop, report: Reporter
) -> Worker | None:
    """The worker, as soon as its store gives an answer. None: it was stopped while it waited for that."""
    pause_s = _OPEN_PAUSE_S
    while not stop.asked.is_set():
        try:
            return await once()
        except Unavailable as error:
            if stop.name is not None:
                report.trouble(str(error))
                return None
            if order.until_idle:
                raise
            report.trouble(f"{error}; the worker waits for its store")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), pause_s)
        pause_s = min(2 * pause_s, UNCLEAR_PAUSE_MAX_S)
    return None


async def _drive(
    process: Worker, order: WorkerOrder, stop: Stop, report: Reporter, parent: ParentProcess | None
) -> int:  # fmt: skip
    """Until a stop: how many runs still execute."""
    hear(process.runner, process.sweeper, report)

    async def start_once() -> Worker:
        # Under the same id each time: a try whose answer was lost may have registered it.
        await stop.interrupts(process.start(sweeps=order.sweeps, schedules=True))
        return process

    try:
        if await _patiently(start_once, order, stop, report) is not None:
            _print_started(process, order, report)
            if parent is not None:
                parent.announce(process.info.id)
            await _until_stop(process, order, stop, report)
    finally:
        left = await process.stop(stop.name or "idle")
    return left


def _print_started(process: Worker, order: WorkerOrder, report: Reporter) -> None:
    info, known = process.info, ", ".join(order.known)
    begun = (
        f"worker {info.id} (process {info.pid}) drives {known} of {process.store.name}, "
        f"from {'queue' if len(info.queues) == 1 else 'queues'} {', '.join(info.queues)}"
    )
    report.tell("started", begun, runner=info.id, pid=info.pid, workflows=known)


async def _until_stop(process: Worker, order: WorkerOrder, stop: Stop, report: Reporter) -> None:
    asked = asyncio.ensure_future(stop.asked.wait())
    misses = 0
    try:
        while not asked.done() and process.runner.gone is None:
            await asyncio.wait([asked], timeout=_LOOK_S)
            if not order.until_idle or asked.done():
                continue
            try:
                if await _idle(process, order, report):
                    return
                misses = 0
            except Unavailable as error:
                # One lost answer says nothing about what is left to do.
                misses += 1
                if misses >= UNCLEAR_TRIES_MAX:
                    raise
                report.trouble(f"{error}; the worker looks again")
    finally:
        asked.cancel()
    if stop.name is not None:
        text = f"{stop.name}: stopping; steps under way have {in_words(order.grace_s)} (again: at once)"
        report.tell("stopping", text, signal=stop.name, grace_s=order.grace_s)


async def _idle(process: Worker, order: WorkerOrder, report: Reporter) -> bool:
    waiting = await runs_left_when_idle(process.runner, process.sweeper, process.liveness, order)
    if waiting is None:
        return False
    for run_id in stuck_runs(process.runner):
        report.tell("stuck", f"{run_id} waits for nothing and can never continue; see `buoy why {run_id}`", run=run_id)
    report.tell("idle", f"nothing is left to do now; waiting or paused: {counted(waiting, 'run')}", waiting=waiting)
    return True
