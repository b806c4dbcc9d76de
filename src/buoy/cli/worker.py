"""`buoy worker`: drives the runs of some workflow files, in this process or in several."""

from __future__ import annotations

import click
import msgspec

from buoy.cli.terminal.outlets import outlive_readers
from buoy.cli.terminal.output import results_alone, say
from buoy.cli.terminal.program import Exit, calls_option, duration, go, shared_options, span
from buoy.cli.terminal.sessions.pool import process_count, run_pool
from buoy.cli.terminal.signals import end_at_once
from buoy.core.ids import check_name
from buoy.core.limits import DRIVING_RUNS_MAX, STOP_GRACE_S
from buoy.errors import BadInput
from buoy.wiring.worker_pool import MEMBER_OPTION, ParentProcess, collect_seldom, parent_process


@click.command()
@click.argument("files", metavar="[FILE.py | package.module]...", nargs=-1)
@click.option("--queue", "queues", metavar="QUEUE", multiple=True, help="Serve this queue; may be repeated. [default]")
@click.option("--concurrency", type=click.IntRange(1, DRIVING_RUNS_MAX), default=DRIVING_RUNS_MAX, show_default=True,
              help="Execute at most this many runs at the same time, in each process.")  # fmt: skip
@click.option("--processes", metavar="N|auto", callback=process_count,
              help="Run this many worker processes, and restart those that crash. 'auto': one for each core. "
              "[this process alone]")  # fmt: skip
@click.option("--until-idle", is_flag=True, help="End when nothing is due and nothing executes.")
@click.option("--grace", metavar="TIME", default=f"{STOP_GRACE_S:g}s", show_default=True, callback=duration,
              help="Give steps so long to finish after a request to stop.")  # fmt: skip
@calls_option
@click.option("--no-specs", is_flag=True, help="Take no runs of stored specs, so run none of their commands here.")
@click.option("--start-delay", metavar="TIME", callback=span,
              help="Wait so long before the first whole sweep; --until-idle waits for it. [5 to 15 s]")  # fmt: skip
@click.option("--no-sweeper", is_flag=True, help="Do not look for runs that dead processes left behind.")
@click.option(MEMBER_OPTION, "member", hidden=True)
@shared_options
def worker(**given: object) -> int:
    """Drive the runs of the workflows in these files, and those of stored specs.

    Takes over runs that dead processes left behind, and reports it. Without files, loads those of '[worker] files' in
    buoy.toml; specs need no files. On SIGTERM or Ctrl-C the worker takes no more work, lets steps finish within the
    grace time and releases its runs; a second signal ends it at once. With --processes all workers get both signals.
    If their parent is killed, they stop gracefully by themselves. A worker waits for a store that gives no answer, at
    its start too; with --until-idle it ends with 5.

    \b
    Example:
      buoy worker flows.py --until-idle
      buoy worker flows.py --processes auto

    Exit code: 0 stopped or idle, 1 declared gone or a worker of several failed, 2 bad input, 5 store unusable. A second
    signal: 130 or 143.
    """
    options = msgspec.convert(given, WorkerChoices)
    if options.no_sweeper and options.start_delay is not None:
        raise BadInput("--no-sweeper and --start-delay contradict each other; give one of them")
    for each in options.queues:
        check_name(each, "queue")
    outlive_readers()
    if options.processes is not None and options.member is None:
        return go(run_pool(_words(options), options.processes, until_idle=options.until_idle, as_json=options.as_json))
    return _drive(options)


class WorkerChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    files: tuple[str, ...]
    prefixes: tuple[str, ...]
    queues: tuple[str, ...]
    concurrency: int
    processes: int | None
    # NUMBER:DESCRIPTOR, given by the parent of several workers.
    member: str | None
    until_idle: bool
    grace: float
    no_specs: bool
    no_sweeper: bool
    start_delay: float | None
    store: str | None
    as_json: bool


def _words(options: WorkerChoices) -> list[str]:
    """The command of one worker of several. The store is named only if the person did: it may hold a password."""
    flags = {"--until-idle": options.until_idle, "--no-specs": options.no_specs, "--no-sweeper": options.no_sweeper}
    values = {
        "--concurrency": str(options.concurrency),
        "--grace": f"{round(options.grace * 1000)}ms",
        "--start-delay": None if options.start_delay is None else str(options.start_delay),
        "--store": options.store,
    }
    return [
        "worker",
        *(word for each in options.queues for word in ("--queue", each)),
        *(word for each in options.prefixes for word in ("--allow-calls", each)),
        *(name for name, wanted in (flags | {"--json": options.as_json}).items() if wanted),
        *(word for name, value in values.items() if value is not None for word in (name, value)),
        "--",
        *options.files,
    ]


def _drive(options: WorkerChoices) -> int:
    """One worker in this process."""
    collect_seldom()  # before user code is loaded, which may have its own opinion
    # The parent is heard before user code is loaded, which may take long.
    member = None if options.member is None else _member(options.member)
    from buoy.cli.terminal.sessions.worker import work
    from buoy.operations.targets.spec_files import allowed_calls
    from buoy.operations.workers.worker import WorkerOrder, worker_registry

    with results_alone(as_json=options.as_json) as out:
        order = WorkerOrder(
            registry=worker_registry(options.files, specs=not options.no_specs),
            calls=allowed_calls(options.prefixes),
            queues=options.queues or ("default",),
            concurrency=options.concurrency,
            until_idle=options.until_idle,
            grace_s=options.grace,
            sweeps=not options.no_sweeper,
            delay_s=options.start_delay,
        )
        left, gone = go(work(order, options.store, out, as_json=options.as_json, member=member))
    return _end(left, gone)


def _member(text: str) -> tuple[int, ParentProcess]:
    number, _, descriptor = text.partition(":")
    if not (number.isdecimal() and descriptor.isdecimal()):
        raise BadInput(
            f"{MEMBER_OPTION} {text!r} is no NUMBER:DESCRIPTOR; leave it out, it is for the parent of workers"
        )
    return int(number), parent_process(int(descriptor))


def _end(left: int, gone: str | None) -> int:
    if left:
        # Something still executes here and does not listen. The end of this process is what frees those runs.
        end_at_once(Exit.OK)
    if gone is not None:
        say(f"error: this worker was declared gone and has stopped: {gone}", err=True)
        return Exit.FAILED
    return Exit.OK
