"""`buoy recover`: check a run, show the plan of its recovery, and apply it."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from buoy.cli.terminal.job_lines import recovered_lines
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, check_store, connected, go, shared_options, size, span, wording
from buoy.cli.terminal.recovery_lines import recovery_lines
from buoy.cli.terminal.render import local
from buoy.cli.terminal.run_ids import run_argument
from buoy.cli.terminal.slurm_options import AllocationChoice, allocated_lines, allocation_options, orphan_lines
from buoy.core.batch.resources import Correction
from buoy.core.batch.sizing import Wishes
from buoy.operations import recover as recovery
from buoy.operations.batch.jobs import read_batch
from buoy.operations.batch.recover import JobsRecovered, recover_jobs
from buoy.operations.recover import Recovered
from buoy.operations.slurm.recover import SlurmRecovered, correct_orphans, is_on_slurm, plan_again, recover_slurm_jobs
from buoy.slurm_wiring import slurm_site


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
@click.option("--submit", is_flag=True, help="Runs on Slurm: also submit the allocations that are planned.")
@allocation_options
@shared_options
def recover(run_id: str, dry_run: bool, plan: str | None, store: str | None, as_json: bool, **limits: Any) -> int:
    """Check a run, and recover it if something is wrong with it.

    Of a batch run it also resets failed jobs: those that met a limit get more memory or time, never less than before.
    Jobs that run are left alone. On Slurm it first corrects orphans as `buoy sync-status` does, and plans allocations
    for pending jobs in the end; --submit submits them.

    No event is removed: a recovery that must hide events continues the run on a new branch of its log. Completed steps
    that are kept are not executed again. A run that a live process drives is not changed.

    \b
    Example:
      buoy recover order-1 --dry-run

    Exit code: 0 healthy or recovered, 1 not recovered or a job stays failed, 2 no such run or another plan than --plan,
    5 store unusable.
    """
    wishes = msgspec.convert(limits, AllocationChoice).wishes
    rule = Correction(
        memory_multiplier=limits["memory_multiplier"],
        runtime_multiplier=limits["runtime_multiplier"],
        memory_max_bytes=limits["max_memory"],
        time_max_s=limits["max_time"],
    )
    asked = RecoverChoice(
        rule=rule, dry_run=dry_run, plan=plan, unknown=limits["retry_unknown"], wishes=wishes, submit=limits["submit"]
    )
    found, jobs, slurm = go(_recover(run_id, store, asked))
    if as_json:
        batch = {} if slurm is None else {"slurm": slurm}
        print_json(found.view() if jobs is None else {"run": found.view(), "jobs": jobs, **batch})
    else:
        lines = recovery_lines(found, wording(store, local)) if jobs is None or found.recovery.needed else []
        click.echo("\n".join([*lines, *([] if jobs is None else recovered_lines(jobs)), *_slurm_lines(slurm)]))
    stuck = jobs is not None and not all(each.reset for each in jobs.jobs)
    refused = slurm is not None and slurm.allocated is not None and not slurm.allocated.complete
    return Exit.FAILED if found.recovery.error is not None or stuck or refused else Exit.OK


class RecoverChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    rule: Correction
    dry_run: bool
    plan: str | None
    unknown: bool
    wishes: Wishes
    submit: bool


def _slurm_lines(slurm: SlurmRecovered | None) -> list[str]:
    if slurm is None:
        return []
    plan = [] if slurm.allocated is None else allocated_lines(slurm.allocated)
    return [*orphan_lines(slurm.synced.orphans, dry_run=slurm.synced.dry_run), *plan]


async def _recover(
    run_id: str, store: str | None, asked: RecoverChoice
) -> tuple[Recovered, JobsRecovered | None, SlurmRecovered | None]:
    async with connected(store) as client:
        document = (await client.record(run_id)).document
        checked, site, synced = document.run_id, None, None
        if document.placement == "batch" and not document.ended and await is_on_slurm(client, checked):
            site = slurm_site(client, check_store(store), checked, (await read_batch(client, checked)).plan)
            synced = await correct_orphans(site, checked, dry_run=asked.dry_run)
        found = await recovery.recover(client, run_id, dry_run=asked.dry_run, shown=asked.plan)
        document = (await client.record(run_id)).document
        if document.placement != "batch" or document.ended:
            return found, None, None
        recover_all = recover_jobs if site is None else recover_slurm_jobs
        jobs = await recover_all(client, checked, asked.rule, retry_unknown=asked.unknown, dry_run=asked.dry_run)
        if site is None or synced is None:
            return found, jobs, None
        allocated = None if asked.dry_run else await plan_again(site, checked, asked.wishes, submit=asked.submit)
        return found, jobs, SlurmRecovered(synced, allocated)
