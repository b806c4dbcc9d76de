"""`buoy jobs`: lists the jobs of a batch run."""

from __future__ import annotations

import click

from buoy.cli.terminal.lines.jobs import counts_line, job_lines
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, go, inspected, shared_options
from buoy.core.batch.jobs import JobStatus
from buoy.core.ids import RunId
from buoy.operations.batch.job_list import Jobs, list_jobs


@click.command()
@run_argument
@click.argument("names", metavar="[JOB]...", nargs=-1)
@click.option("--status", "statuses", multiple=True, type=click.Choice([each.value for each in JobStatus]),
              help="Only jobs with this status; may be repeated.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Show at most N jobs.")
@shared_options
def jobs(
    run_id: str, names: tuple[str, ...], statuses: tuple[str, ...], limit: int, store: str | None, as_json: bool
) -> int:
    """List the jobs of a batch run: status, attempt, machine, exit code or signal, time, peak memory, cause.

    \b
    Example:
      buoy jobs nightly-7c2a --status failed --status blocked

    Exit code: 0 listed, 2 bad input, 5 store unusable.
    """
    found = go(_listed(run_id, statuses, names, None if as_json else limit, store))
    if as_json:
        print_json(found)
        return Exit.OK
    for line in job_lines(found.jobs):
        say(line)
    if found.left_out:
        say(f"{found.left_out} more; raise --limit, or choose with --status", err=True)
    say(counts_line(found.counts), err=True)
    if found.trouble is not None:
        say(f"the run is {found.trouble}; see `buoy why {found.run_id}`", err=True)
    return Exit.OK


async def _listed(
    run_id: str, statuses: tuple[str, ...], names: tuple[str, ...], limit: int | None, store: str | None
) -> Jobs:
    async with inspected(store) as at:
        return await list_jobs(at, RunId(run_id), statuses, names, limit)
