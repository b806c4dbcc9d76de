"""`buoy runner`: run jobs of one batch run on this machine."""

from __future__ import annotations

import click
import msgspec

from buoy.cli.terminal.outlets import outlive_readers
from buoy.cli.terminal.output import results_alone
from buoy.cli.terminal.program import Exit, check_store, go, machines, shared_options, size, span
from buoy.cli.terminal.signals import end_at_once
from buoy.core.batch.resources import Capacity


@click.command()
@click.option("--run", "run_id", metavar="RUN", required=True, help="Run jobs of this run.")
@click.option("--cpus", type=click.IntRange(1, 100_000), help="Processors for jobs. [those of this process]")
@click.option("--memory", metavar="SIZE", callback=size, help="Memory for jobs, such as 64GiB. [that of this process]")
@click.option("--gpus", type=click.IntRange(0, 10_000), help="Graphics processors for jobs. [those of this process]")
@click.option("--nodes", metavar="NAMES", callback=machines,
              help="Machines for jobs that need several, such as n1,n[2-4]. [those of this Slurm job]")  # fmt: skip
@click.option("--time-left", metavar="TIME", callback=span,
              help="Give jobs back shortly before this time is over; take none that needs longer.")  # fmt: skip
@shared_options
def runner(**given: object) -> int:
    """Run jobs of a batch run on this machine.

    Claims lots whose jobs fit what is free here: processors, memory, graphics processors and time. Memory and time are
    enforced. If no process drives the run, this one does. Ends when the run has ended or is paused. On SIGTERM it gives
    back what has not started, stops its jobs (30 s for those with supports_termination, else 5 s), and ends.

    \b
    Example:
      buoy runner --run nightly-7c2a --cpus 16 --memory 64GiB

    Exit code: 0 completed or stopped, 1 failed, 2 bad input, 3 cancelled, 4 paused, 5 store unusable.
    """
    options = msgspec.convert(given, RunnerChoice)
    from buoy.cli.terminal.sessions.runner import run_jobs

    url = check_store(options.store)
    outlive_readers()
    with results_alone(as_json=options.as_json) as out:
        left, code = go(run_jobs(url, options.run_id, options.capacity, options.nodes, out, as_json=options.as_json))
    if left:
        end_at_once(Exit.OK)
    return code


class RunnerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    run_id: str
    cpus: int | None
    memory: int | None
    gpus: int | None
    nodes: tuple[str, ...] | None
    time_left: float | None
    store: str | None
    as_json: bool

    def capacity(self, machine: Capacity) -> Capacity:
        """What of this machine is for jobs."""
        return Capacity(
            cpus=self.cpus or machine.cpus,
            memory_bytes=self.memory or machine.memory_bytes,
            gpus=machine.gpus if self.gpus is None else self.gpus,
            time_left_s=self.time_left,
        )
