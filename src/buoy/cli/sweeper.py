"""`buoy sweeper`: finds runs that dead processes left behind, and recovers them."""

from __future__ import annotations

import asyncio

import click
import msgspec

from buoy.cli.terminal.output import json_line, print_json, say, say_line
from buoy.cli.terminal.program import Exit, check_store, go, shared_options, span, wording
from buoy.cli.terminal.render import clock, local
from buoy.cli.terminal.signals import stop_signals
from buoy.config import configured_env, configured_stack
from buoy.core.durations import in_words
from buoy.core.explain.phrases import Wording, listed
from buoy.core.limits import LOOKS_APART_S, STALE_AFTER_S, SWEEP_S
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.maintenance.sweep import (
    COUNTED,
    Recovery,
    Scope,
    SweepOptions,
    SweepReport,
    WholeSweep,
    sweep_counts,
    sweep_once,
    swept_run,
)
from buoy.wiring.sweeper import SweeperProcess, open_sweeper

_LOOK_S = 0.2
_TROUBLES_SHOWN = 10


class SweeperCall(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    options: SweepOptions
    interval_s: float
    delay_s: float
    store: str | None
    as_json: bool
    strict: bool = False


@click.command()
@click.option(
    "--interval",
    metavar="TIME",
    default=f"{SWEEP_S:g}",
    show_default=True,
    callback=span,
    help="Time between two whole sweeps: seconds, or 5m, 1h... Dead processes are detected every second.",
)
@click.option(
    "--stale-after",
    metavar="TIME",
    default=f"{STALE_AFTER_S:g}",
    show_default=True,
    callback=span,
    help="Inspect runs that have made no progress for so long.",
)
@click.option(
    "--start-delay",
    metavar="TIME",
    default="0",
    show_default=True,
    callback=span,
    help="Wait so long before the first whole sweep, for example until workers are up after a deploy.",
)
@click.option("--once", is_flag=True, help="Sweep once and exit, for cron.")
@click.option("--stack", metavar="NAME", help="Only runs of this stack, and runs without a stack. [the configured one]")
@click.option("--all-stacks", is_flag=True, help="Include runs of all stacks.")
@click.option("--env", metavar="NAME", help="Only runs of this env; '' is the default one. [the configured one]")
@click.option("--adopt", is_flag=True, help="Adopt runs that another system wrote.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done; implies --once.")
@click.option("--strict", is_flag=True, help="With --once: exit 1 for notices too, such as a step that takes long.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Recover at most this many runs in one sweep.")
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(0.0, min_open=True),
    help="Recover at most this many runs per second, to spread the load after an outage.",
)
@shared_options
def sweeper(
    interval: float,
    stale_after: float,
    start_delay: float,
    once: bool,
    stack: str | None,
    all_stacks: bool,
    env: str | None,
    adopt: bool,
    dry_run: bool,
    strict: bool,
    limit: int | None,
    rate: float | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Find runs that were left behind, and recover them.

    Finds runs of dead processes, lost tasks and wake-ups, and broken state. Each run is queued again, restarted,
    failed or held, by the policy of its workflow. The sweeper executes no workflow. Any number of sweepers may run at
    once. Every worker sweeps by itself; use this command when no worker runs, or from cron.

    \b
    Example:
      buoy sweeper --interval 300
      buoy sweeper --once --dry-run

    A long step in a live worker is a notice: it is printed, and only --strict makes it a failure.

    Exit code: 0 swept, 1 with --once: runs are still in trouble, or were recovered while no worker is alive, 2 bad
    input, 5 store unusable.
    """
    if stack is not None and all_stacks:
        raise BadInput("both --stack and --all-stacks were given; give one of them")
    scope = _scope(None if all_stacks else stack or configured_stack(), env)
    options = SweepOptions(scope=scope, stale_after_s=stale_after, adopt=adopt, dry_run=dry_run, limit=limit, rate=rate)
    plan = SweeperCall(
        options=options, interval_s=interval, delay_s=start_delay, store=store, as_json=as_json, strict=strict
    )
    return go(_once(plan) if once or dry_run else _loop(plan))


def _scope(stack: str | None, env: str | None) -> Scope:
    """`env` '': the default one; None: the configured one."""
    return Scope(stack, configured_env() if env is None else env or None)


async def _once(plan: SweeperCall) -> Exit:
    url, dry_run = check_store(plan.store), plan.options.dry_run
    await asyncio.sleep(plan.delay_s)
    async with open_sweeper(url, plan.options, interval_s=plan.interval_s, once=True) as process:
        report = await sweep_once(process.sweeper, process, dry_run=dry_run)
    if plan.as_json:
        runs = [swept_run(each) for each in report.found]
        print_json({**sweep_counts(report.done), "dry_run": dry_run, "runs": runs})
    else:
        for each in report.found:
            say(_line(each, dry_run=dry_run))
        say(_summary(report.done, dry_run=dry_run))
        for line in _hints(report, wording(plan.store, local)):
            say(line, err=True)
    noticed = plan.strict and report.done.swept.notices
    return Exit.FAILED if report.failed or noticed else Exit.OK


async def _loop(plan: SweeperCall) -> Exit:
    """Sweeps until a signal asks for a stop."""
    dry_run = plan.options.dry_run
    url = check_store(plan.store)
    async with open_sweeper(url, plan.options, interval_s=plan.interval_s) as process:
        now = process.clock.now

        def tell(what: str, text: str, facts: object) -> None:
            shown = (
                json_line({"at": now(), "what": what, **_dict(facts)}) if plan.as_json else f"{clock(now())}  {text}"
            )
            say_line(shown, as_json=plan.as_json)

        sweeper = process.sweeper
        sweeper.delay_s = plan.delay_s
        sweeper.on_recovery = lambda found: tell("run", _line(found, dry_run=dry_run), swept_run(found))
        sweeper.done = lambda done: tell("swept", _summary(done, dry_run=dry_run), sweep_counts(done))
        with stop_signals() as stop:
            tell("started", f"sweeping {process.store.name} as {process.id}", {"runner": process.id})
            sweeper.start()
            await _until(process, stop.asked)
        said = f"declared gone: {process.gone}" if process.gone else "stopped"
        tell("stopped", said, {"signal": stop.name})
    return Exit.FAILED if process.gone else Exit.OK


async def _until(process: SweeperProcess, asked: asyncio.Event) -> None:
    errors = 0
    while not asked.is_set() and process.gone is None:
        await asyncio.sleep(_LOOK_S)
        if process.sweeper.errors > errors:
            errors = process.sweeper.errors
            say(f"error: {process.sweeper.last_error}; trying again", err=True)


def _hints(report: SweepReport, words: Wording) -> list[str]:
    """What a person still has to do, with the commands for it."""
    done, found, dry_run = report.done, report.found, report.dry_run
    lines: list[str] = []
    troubles = (*done.swept.troubles, *done.reconciled.troubles)
    # What is left of a run that was reported stands in its own line.
    more = (*done.swept.apart, *done.reconciled.troubles)
    lines += [f"left: {text}" for text in more[:_TROUBLES_SHOWN]]
    if troubles or done.swept.unknown:
        lines.append(
            f"what to do about one of them: {words.command('why', 'RUN')}; about all: {words.command('why', '--all')}"
        )
    held = [str(each.run_id) for each in found if each.action in ("hold", "quarantine")]
    if held and not dry_run:
        lines.append(f"held until you release them: {listed(held)}; see {words.command('why', held[0])}")
    if done.left:
        noted = f"{listed([str(each) for each in done.left])} on another host: its last beat was noted"
        again = words.command("sweeper", "--once")
        lines.append(f"{noted}; a look after {in_words(LOOKS_APART_S)} or more tells whether it lives: {again}")
    waits = done.swept.moved or any(finding.code == "Q5" for each in found for finding in each.findings)
    if waits and not report.worker_alive and not dry_run:
        worker = words.command("worker", "FILE.py")
        lines.append(f"no worker is alive; start one to continue: {worker}")
    return lines


def _dict(facts: object) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(facts)
    return found


def _line(found: Recovery, *, dry_run: bool) -> str:
    verb = {
        "resume": "resumed",
        "retry": "resumed, to run a failed step again",
        "compensate": "resumed, to undo what is done and fail",
        "restart": "restarted",
        "fail": "failed",
        "hold": "held for a person",
        "quarantine": "quarantined",
        "lost": "was taken by another",
        "unknown": "unknown",
        "none": "is healthy; notice",
    }.get(found.action, "left alone")
    why = "; ".join(text for text in (found.reason, found.error, found.note) if text)
    return f"{found.run_id} {'would be ' if dry_run and found.plan else ''}{verb}: {why or 'its task was lost'}"


def _summary(done: WholeSweep, *, dry_run: bool) -> str:
    swept = done.swept
    parts = [f"{getattr(swept, word):,} {word}" for word in COUNTED if word == "scanned" or getattr(swept, word)]
    if swept.dead_runners:
        parts.append(counted(swept.dead_runners, "dead runner"))
    if done.reconciled.replayed:
        parts.append(f"{done.reconciled.replayed:,} woken again")
    if done.left:
        parts.append(f"{counted(len(done.left), 'runner')} of other hosts left to a second look")
    if swept.more:
        parts.append("limit reached, there may be more")
    return f"{'would have swept' if dry_run else 'swept'} in {done.duration_s:.1f} s: {', '.join(parts)}"
