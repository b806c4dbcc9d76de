"""`buoy watch`: follow the jobs of a batch run."""

from __future__ import annotations

import asyncio
import sys

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from buoy.cli.terminal.job_lines import job_cause
from buoy.cli.terminal.output import json_line
from buoy.cli.terminal.program import Exit, go, inspected, shared_options, span
from buoy.cli.terminal.render import clock
from buoy.cli.terminal.run_ids import run_argument
from buoy.config import colours_wanted
from buoy.core.batch.jobs import JobStatus
from buoy.core.durations import in_words
from buoy.core.ids import RunId
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.operations.batch.watch import BatchProgress, JobWatch

_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.RUNNING: "cyan",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "magenta",
}
_ENDS = {Status.COMPLETED: Exit.OK, Status.FAILED: Exit.FAILED, Status.CANCELLED: Exit.CANCELLED}
_BAR = 60


@click.command()
@run_argument
@click.option("--poll", metavar="TIME", default="2s", show_default=True, callback=span, help="Look this often.")
@click.option("--once", is_flag=True, help="Show one look, and end.")
@shared_options
def watch(run_id: str, poll: float, once: bool, store: str | None, as_json: bool) -> int:
    """Follow the jobs of a batch run until it ends or pauses: by status, by runner, and the last failures.

    On a terminal the view is redrawn. Elsewhere each change is one line. Nothing is changed.

    \b
    Example:
      buoy watch nightly-7c2a

    Exit code: 0 completed, 1 failed, 2 bad input, 3 cancelled, 4 paused or not ended, 5 store unusable.
    """
    return go(_watch(RunId(run_id), poll, store, once=once, as_json=as_json))


async def _watch(run_id: RunId, poll_s: float, store: str | None, *, once: bool, as_json: bool) -> Exit:
    terminal = sys.stdout.isatty() and not as_json
    console = Console(no_color=not colours_wanted())
    shown = ""
    async with inspected(store) as at:
        watching = JobWatch(at, run_id)
        with Live(console=console, transient=False, auto_refresh=False) as live:
            while True:
                found = await watching.look()
                if terminal:
                    live.update(_view(found), refresh=True)
                elif (line := json_line(found) if as_json else _line(found)) != shown:
                    shown = line
                    click.echo(line if as_json else f"{clock(at.clock.now())}  {line}")
                if once or found.status in TERMINAL or found.status == Status.PAUSED:
                    return _ENDS.get(Status(found.status), Exit.NOT_ENDED)
                await asyncio.sleep(poll_s)


def _line(found: BatchProgress) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    last = f"; last failure: {found.failures[0].job} ({job_cause(found.failures[0])})" if found.failures else ""
    return f"{found.status}: {counts}{last}"


def _view(found: BatchProgress) -> Group:
    total = max(1, sum(found.counts.values()))
    bar = Text()
    for status, count in sorted(
        found.counts.items(), key=lambda each: list(_COLOURS).index(each[0]) if each[0] in _COLOURS else 9
    ):
        bar.append("█" * max(1, round(_BAR * count / total)), style=_COLOURS.get(status, "dim"))
    rate = "" if found.per_minute is None else f"  {found.per_minute:.1f} jobs/min"
    left = "" if found.left_s is None else f"  about {in_words(found.left_s)} left"
    lines = [
        Text(f"{found.run_id}  {found.status}{rate}{left}", style="bold"),
        bar,
        Text(", ".join(f"{count} {status}" for status, count in found.counts.items())),
    ]
    for runner in found.runners:
        jobs = ", ".join(runner.jobs[:4]) + (" ..." if len(runner.jobs) > 4 else "")
        lines.append(Text(f"  {runner.host or '?'}  {runner.runner}: {jobs or 'nothing yet'}"))
    for job in found.failures:
        lines.append(Text(f"  failed {job.job}  {job_cause(job)}", style="red"))
    return Group(*lines)
