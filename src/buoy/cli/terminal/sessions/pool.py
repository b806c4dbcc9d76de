"""The parent of `buoy worker --processes`: runs the pool, hears signals and reports every worker.

Invariant: the exit code is that of one worker where all agree; a worker that did not stop in good order makes it 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from buoy.cli.terminal.lines.reports import ReportLines
from buoy.cli.terminal.program import Exit
from buoy.core.durations import in_words
from buoy.core.limits import PROCESSES_MAX
from buoy.core.log.wording import counted
from buoy.operations.workers.worker_pool import PoolEnd, PoolEvent, PoolOptions, WorkerPool
from buoy.wiring.worker_pool import cores, pool_clock, worker_pool

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What no restart repairs.
_REFUSALS = (int(Exit.BAD_INPUT), int(Exit.STORE))


def process_count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """An option that is a number of processes, or `auto`: one for each core."""
    if value is None or value == "auto":
        return None if value is None else cores()
    found = int(value) if value.isdecimal() else 0
    if not 1 <= found <= PROCESSES_MAX:
        raise click.BadParameter(f"{value!r} is no number of processes; write 1 to {PROCESSES_MAX}, or auto")
    return found


async def run_pool(words: Sequence[str], processes: int, *, until_idle: bool, as_json: bool) -> int:
    """Until the pool has ended: its exit code."""
    lines = ReportLines(sys.stdout, pool_clock().now, as_json=as_json)
    options = PoolOptions(processes=processes, until_idle=until_idle, refusals=_REFUSALS)
    pool = worker_pool(words, options, lambda event: _print_event(lines, event))
    count = counted(processes, "worker")
    lines.tell("pool", f"process {os.getpid()} keeps {count} alive", processes=processes, pid=os.getpid())
    with _signals(pool, lines) as heard:
        end = await pool.run()
    code = _code(end, heard)
    text = f"all workers have ended; {counted(end.restarts, 'restart')}, exit code {code}"
    lines.tell("pool_ended", text, exit_code=code, restarts=end.restarts, signal=heard[0].name if heard else None)
    return code


@contextmanager
def _signals(pool: WorkerPool, lines: ReportLines) -> Iterator[list[signal.Signals]]:
    """The first signal asks for a graceful stop, the second ends all workers at once. Yields those that were heard."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []

    def hear(number: signal.Signals) -> None:
        heard.append(number)
        if len(heard) == 1:
            lines.tell("stopping", f"{number.name}: all workers stop (again: at once)", signal=number.name)
            pool.stop(number.name)
        else:
            pool.end_at_once(number.name)

    for each in _SIGNALS:
        loop.add_signal_handler(each, hear, each)
    try:
        yield heard
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


def _code(end: PoolEnd, heard: list[signal.Signals]) -> int:
    if end.refused is not None:
        return end.refused
    if len(heard) > 1:
        return 128 + heard[1]
    in_order = not end.given_up and all(code in (0, None) for code in end.codes)
    return Exit.OK if in_order else Exit.FAILED


def _print_event(lines: ReportLines, event: PoolEvent) -> None:
    facts = {name: value for name in event.__struct_fields__ if (value := getattr(event, name)) is not None}
    facts.pop("what")
    lines.tell(f"worker_{event.what}", f"[{event.process}] {_text(event)}", **facts)


def _text(event: PoolEvent) -> str:
    match event.what:
        case "spawned":
            return f"process {event.pid} begins"
        case "ready":
            return f"process {event.pid} is at work as {event.runner}"
        case "ended":
            return f"process {event.pid} {_end(event.code)}"
        case "restarting":
            why = "" if event.detail is None else f"{event.detail}; "
            return f"{why}starts again in {in_words(event.wait_s)} (crashes in a row: {event.crashes})"
        case "given_up":
            return f"crashed {event.crashes} times in a row; given up"
        case "refused":
            return "refused to start, see above; no worker is started"


def _end(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
