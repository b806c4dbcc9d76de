"""`buoy watch`: follow the jobs of a batch run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.text import Text

from buoy.cli.terminal.lines.jobs import job_cause
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.options.slurm import AllocationChoice, allocation_options, tended_lines
from buoy.cli.terminal.output import json_line, say, say_line
from buoy.cli.terminal.plain_console import PlainConsole
from buoy.cli.terminal.program import Exit, check_store, connected, go, inspected, shared_options, span, wording
from buoy.cli.terminal.render import clock, local
from buoy.config import colours_wanted
from buoy.core.batch.jobs import JobStatus
from buoy.core.batch.resources import Correction
from buoy.core.durations import in_words
from buoy.core.ids import RunId
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.errors import Unavailable
from buoy.operations.batch.jobs import read_batch
from buoy.operations.batch.watch import BatchProgress, JobWatch
from buoy.operations.slurm.tend import Tended, Tender, TendOptions, check_scheduler
from buoy.wiring.slurm import slurm_site

_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.RUNNING: "cyan",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "magenta",
}
_ENDS = {Status.COMPLETED: Exit.OK, Status.FAILED: Exit.FAILED, Status.CANCELLED: Exit.CANCELLED}
_BAR = 60
_LOOK_S = 2.0
# A scheduler that many people share is asked seldom.
_TEND_S = 60.0


@click.command()
@run_argument
@click.option("--poll", metavar="TIME", callback=span, help="Look this often. [2s, or 60s with --recover]")
@click.option("--once", is_flag=True, help="Show one look, and end.")
@click.option("--recover", is_flag=True, help="On Slurm: correct orphans, reset failed jobs, ask for allocations.")
@click.option("--auto-schedule", is_flag=True, help="On Slurm: correct orphans and ask for allocations; reset no job.")
@click.option("--max-recoveries", type=click.IntRange(0, 100), default=3, show_default=True,
              help="Reset failed jobs at most so often.")  # fmt: skip
@click.option("--retry-unknown", is_flag=True, help="With --recover: also reset jobs that failed for another reason.")
@allocation_options
@shared_options
def watch(run_id: str, poll: float | None, once: bool, store: str | None, as_json: bool, **given: Any) -> int:
    """Follow the jobs of a batch run until it ends or pauses: by status, by runner, and the last failures.

    On a terminal the view is redrawn. Elsewhere each change is one line. Nothing is changed, unless --recover or
    --auto-schedule says so: then each look also asks Slurm about the run's allocations, once. A run that ended keeps
    none.

    \b
    Example:
      buoy watch nightly-7c2a --recover --account bio

    Exit code: 0 completed, 1 failed, 2 bad input, 3 cancelled, 4 paused or not ended, 5 store or Slurm unusable.
    """
    choice = WatchChoice(
        recover=given.pop("recover"),
        auto_schedule=given.pop("auto_schedule"),
        recoveries_max=given.pop("max_recoveries"),
        retry_unknown=given.pop("retry_unknown"),
        allocations=msgspec.convert(given, AllocationChoice),
        once=once,
    )
    poll_s = poll or (_TEND_S if choice.tends else _LOOK_S)
    return go(_watch(RunId(run_id), poll_s, store, choice, once=once, as_json=as_json))


class WatchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the person allows."""

    recover: bool
    auto_schedule: bool
    recoveries_max: int
    retry_unknown: bool
    allocations: AllocationChoice
    once: bool = False

    @property
    def tends(self) -> bool:
        return self.recover or self.auto_schedule

    @property
    def options(self) -> TendOptions:
        most = self.recoveries_max if self.recover else 0
        rule = Correction()
        return TendOptions(
            wishes=self.allocations.after,
            rule=rule,
            recoveries_max=most,
            retry_unknown=self.retry_unknown,
            single_look=self.once,
        )


async def _watch(
    run_id: RunId, poll_s: float, store: str | None, choice: WatchChoice, *, once: bool, as_json: bool
) -> Exit:
    terminal = sys.stdout.isatty() and not as_json
    console = PlainConsole(no_color=not colours_wanted())
    shown, words = "", wording(store, local)
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(inspected(store))
        watching = JobWatch(at, run_id)
        tender = await stack.enter_async_context(_tender(run_id, store, choice)) if choice.tends else None
        live = stack.enter_context(Live(console=console, transient=False, auto_refresh=False))
        while True:
            tended = None if tender is None else await tender.look()
            for line in [] if tended is None else tended_lines(tended, run_id, words, as_json=as_json):
                say_line(line if as_json else f"{clock(at.clock.now())}  {line}", as_json=as_json)
            try:
                found = await watching.look()
            except Unavailable as error:
                if tender is None or once:
                    raise
                # Who looks after a run outlives its server.
                say(f"{clock(at.clock.now())}  the store does not answer: {error}", err=True)
                await asyncio.sleep(poll_s)
                continue
            if terminal:
                live.update(_view(found), refresh=True)
            elif (line := json_line(found) if as_json else _line(found)) != shown:
                shown = line
                say_line(line if as_json else f"{clock(at.clock.now())}  {line}", as_json=as_json)
            if once or _over(found, tended):
                return _ENDS.get(Status(found.status), Exit.NOT_ENDED)
            await asyncio.sleep(max(poll_s, watching.rest_s))


def _over(found: BatchProgress, tended: Tended | None) -> bool:
    """Where the run is looked after, its end is seen by the look that also cancels what is left of its allocations."""
    return tended.over if tended is not None else found.status in TERMINAL or found.status == Status.PAUSED


@asynccontextmanager
async def _tender(run_id: RunId, store: str | None, choice: WatchChoice) -> AsyncIterator[Tender]:
    async with connected(store) as client:
        plan = (await read_batch(client, run_id)).plan
        site = slurm_site(client, check_store(store), run_id, plan)
        await check_scheduler(site, run_id)
        yield Tender(site, run_id, choice.options)


def _line(found: BatchProgress) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    last = f"; last failure: {found.failures[0].job} ({job_cause(found.failures[0])})" if found.failures else ""
    trouble = f"; the run is {found.trouble}; see `buoy why {found.run_id}`" if found.trouble else ""
    return f"{found.status}: {counts}{last}{trouble}"


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
    if found.trouble:
        lines.append(Text(f"  the run is {found.trouble}; see `buoy why {found.run_id}`", style="yellow"))
    for job in found.failures:
        lines.append(Text(f"  failed {job.job}  {job_cause(job)}", style="red"))
    return Group(*lines)
