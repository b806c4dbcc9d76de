"""`buoy recover`: check a run, show the plan of its recovery, and apply it."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
import msgspec

from buoy.cli.terminal.lines.jobs import recovered_lines
from buoy.cli.terminal.lines.recoveries import recovery_lines
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.options.slurm import AllocationChoice, allocated_lines, allocation_options, orphan_lines
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, check_store, connected, go, shared_options, size, span, wording
from buoy.cli.terminal.render import local
from buoy.core.batch.resources import Correction
from buoy.core.explain.phrases import Wording
from buoy.operations.batch.hook import HookEnd, run_hook
from buoy.operations.batch.jobs import read_batch
from buoy.operations.batch.recover import JobsRecovered
from buoy.operations.control import recover as recovery
from buoy.operations.control.recover import Recovered
from buoy.operations.slurm.recover import SlurmRecovered, correct_orphans, is_on_slurm, plan_again, recover_jobs
from buoy.wiring.slurm import hook_place, slurm_site


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
@click.option("--recovery-hook", "hook", metavar="CMD", help="Batch runs: run this command before jobs are reset.")
@click.option("--submit", is_flag=True, help="Runs on Slurm: also submit the allocations that are planned.")
@allocation_options
@shared_options
def recover(run_id: str, dry_run: bool, plan: str | None, store: str | None, as_json: bool, **limits: Any) -> int:
    """Check a run, and recover it if something is wrong with it.

    Of a batch run it also resets failed jobs: those that met a limit get more memory or time, never less than before.
    Jobs that run are left alone. On Slurm it first corrects orphans as `buoy sync-status` does, and plans allocations
    for pending jobs in the end; --submit submits them. --recovery-hook runs a command before jobs are reset, with
    BUOY_RUN_ID, BUOY_RUN_STATUS, BUOY_FAILED_JOBS, BUOY_RESET_JOBS, BUOY_STORE and BUOY_RECOVERY_FILE, a JSON file with
    the plan. If it fails, nothing is reset.

    No event is removed: a recovery that must hide events continues the run on a new branch of its log. Completed steps
    that are kept are not executed again. A run that a live process drives is not changed.

    \b
    Example:
      buoy recover order-1 --dry-run

    Exit code: 0 healthy or recovered, 1 something is still stuck, 2 no such run or another plan than --plan, 5 store or
    Slurm unusable. Stuck is a job that stays failed, a hook that failed, or jobs for which no allocation was submitted.
    """
    rule = Correction(
        memory_multiplier=limits["memory_multiplier"],
        runtime_multiplier=limits["runtime_multiplier"],
        memory_max_bytes=limits["max_memory"],
        time_max_s=limits["max_time"],
    )
    asked = RecoverChoice(
        rule=rule,
        dry_run=dry_run,
        plan=plan,
        unknown=limits["retry_unknown"],
        allocations=msgspec.convert(limits, AllocationChoice),
        submit=limits["submit"],
        hook=limits["hook"],
    )
    found = go(_recover(run_id, store, asked))
    if as_json:
        print_json(found.as_json())
    else:
        jobs, needed, words = found.jobs, found.run.recovery.needed, wording(store, local)
        lines = recovery_lines(found.run, words) if jobs is None or needed else []
        lines += [] if jobs is None or (needed and not jobs.jobs) else recovered_lines(jobs)
        say("\n".join([*lines, *found.lines(words)]))
    return Exit.FAILED if found.is_stuck else Exit.OK


class RecoverChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    rule: Correction
    dry_run: bool
    plan: str | None
    unknown: bool
    allocations: AllocationChoice
    submit: bool
    hook: str | None


class RecoverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found and done. `jobs` is there for batch runs, `slurm` for those on a cluster."""

    run: Recovered
    jobs: JobsRecovered | None = None
    slurm: SlurmRecovered | None = None
    hook: HookEnd | None = None

    @property
    def is_stuck(self) -> bool:
        failed = self.jobs is not None and not all(each.reset or each.waiting for each in self.jobs.jobs)
        waits = self.slurm is not None and self.slurm.is_stuck
        return self.run.recovery.error is not None or failed or waits or (self.hook is not None and not self.hook.ok)

    def as_json(self) -> object:
        if self.jobs is None:
            return self.run.view()
        more = {name: each for name in ("slurm", "hook") if (each := getattr(self, name)) is not None}
        return {"run": self.run.view(), "jobs": self.jobs, **more}

    def lines(self, words: Wording) -> list[str]:
        found = []
        if self.hook is not None:
            code = f"exit code {self.hook.exit_code}" if self.hook.exit_code is not None else "no exit code"
            failed = f" {self.hook.problem}" if self.hook.problem else ""
            found.append(f"the recovery hook ended with {code}{'' if self.hook.ok else '; nothing was reset.'}{failed}")
        if self.slurm is not None:
            synced = self.slurm.synced
            found += orphan_lines(synced.orphans, synced.run_id, words, dry_run=synced.dry_run)
            found += [] if self.slurm.allocated is None else allocated_lines(self.slurm.allocated)
            if self.slurm.is_stuck and not synced.dry_run:
                found.append("jobs wait, and no allocation was submitted for them; add --submit")
        return found


async def _recover(run_id: str, store: str | None, asked: RecoverChoice) -> RecoverAnswer:
    async with connected(store) as client:
        document = (await client.record(run_id)).document
        checked, site, synced = document.run_id, None, None
        if document.placement == "batch" and not document.ended and await is_on_slurm(client, checked):
            site = slurm_site(client, check_store(store), checked, (await read_batch(client, checked)).plan)
            synced = await correct_orphans(site, checked, dry_run=asked.dry_run)
        run = await recovery.recover(client, run_id, dry_run=asked.dry_run, shown=asked.plan)
        document = (await client.record(run_id)).document
        if document.placement != "batch" or document.ended:
            return RecoverAnswer(run=run)
        recover_all = partial(recover_jobs, client, checked, asked.rule, retry_unknown=asked.unknown)
        hook = None
        if asked.hook is not None and not asked.dry_run:
            plan = await recover_all(dry_run=True)
            if not all(each.waiting for each in plan.jobs):
                batch = await read_batch(client, checked)
                place = hook_place(client, check_store(store), batch.plan)
                hook = await run_hook(place, checked, document.status, asked.hook, plan.jobs, len(batch.log))
            if hook is not None and not hook.ok:
                slurm = None if synced is None else SlurmRecovered(synced)
                return RecoverAnswer(run=run, jobs=plan, slurm=slurm, hook=hook)
        jobs = await recover_all(dry_run=asked.dry_run)
        if site is None or synced is None:
            return RecoverAnswer(run=run, jobs=jobs, hook=hook)
        allocated = None
        if not asked.dry_run:
            wishes = await asked.allocations.wishes(client, checked)
            allocated = await plan_again(site, checked, wishes, submit=asked.submit)
        return RecoverAnswer(run=run, jobs=jobs, slurm=SlurmRecovered(synced, allocated), hook=hook)
