"""`buoy recover`: check a run, show the plan of its recovery, and apply it."""

from __future__ import annotations

from typing import Any

import click

from buoy.cli.terminal.job_lines import recovered_lines
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, size, span, wording
from buoy.cli.terminal.recovery_lines import recovery_lines
from buoy.cli.terminal.render import local
from buoy.cli.terminal.run_ids import run_argument
from buoy.core.batch.resources import Correction
from buoy.operations import recover as recovery
from buoy.operations.batch.recover import JobsRecovered, recover_jobs
from buoy.operations.recover import Recovered


@click.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Only show the branch, what is kept and what would run again.")
@click.option("--plan", metavar="ID", help="Apply only the plan with this id: 'plan.id' of --dry-run --json.")
@click.option("--memory-multiplier", type=float, default=1.5, show_default=True,
              help="Batch runs: raise the memory of jobs that ran out of it.")  # fmt: skip
@click.option("--runtime-multiplier", type=float, default=1.4, show_default=True,
              help="Batch runs: raise the time limit of jobs that met it.")  # fmt: skip
@click.option("--max-memory", metavar="SIZE", callback=size, help="Batch runs: raise no memory beyond this.")
@click.option("--max-time", metavar="TIME", callback=span, help="Batch runs: raise no time limit beyond this.")
@click.option("--retry-unknown", is_flag=True, help="Batch runs: also reset jobs that failed for another reason.")
@shared_options
def recover(run_id: str, dry_run: bool, plan: str | None, store: str | None, as_json: bool, **limits: Any) -> int:
    """Check a run, and recover it if something is wrong with it.

    Of a batch run it also resets failed jobs: those that met a limit get more memory or time, never less than before.
    Jobs that run are left alone.

    No event is removed: a recovery that must hide events continues the run on a new branch of its log. Completed steps
    that are kept are not executed again. A run that a live process drives is not changed.

    \b
    Example:
      buoy recover order-1 --dry-run

    Exit code: 0 healthy or recovered, 1 not recovered or a job stays failed, 2 no such run or another plan than --plan,
    5 store unusable.
    """
    rule = Correction(
        memory_multiplier=limits["memory_multiplier"],
        runtime_multiplier=limits["runtime_multiplier"],
        memory_max_bytes=limits["max_memory"],
        time_max_s=limits["max_time"],
    )
    found, jobs = go(_recover(run_id, store, rule, dry_run=dry_run, plan=plan, unknown=limits["retry_unknown"]))
    if as_json:
        print_json(found.view() if jobs is None else {"run": found.view(), "jobs": jobs})
    else:
        lines = recovery_lines(found, wording(store, local)) if jobs is None or found.recovery.needed else []
        click.echo("\n".join([*lines, *([] if jobs is None else recovered_lines(jobs))]))
    stuck = jobs is not None and not all(each.reset for each in jobs.jobs)
    return Exit.FAILED if found.recovery.error is not None or stuck else Exit.OK


async def _recover(
    run_id: str, store: str | None, rule: Correction, *, dry_run: bool, plan: str | None, unknown: bool
) -> tuple[Recovered, JobsRecovered | None]:
    async with connected(store) as client:
        found = await recovery.recover(client, run_id, dry_run=dry_run, shown=plan)
        document = (await client.record(run_id)).document
        if document.placement != "batch" or document.ended:
            return found, None
        return found, await recover_jobs(client, document.run_id, rule, retry_unknown=unknown, dry_run=dry_run)
