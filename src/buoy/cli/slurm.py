"""`buoy slurm`: allocations of batch runs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.options.slurm import AllocationChoice, action_line, allocated_lines, allocation_options
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, check_store, connected, go, inspected, shared_options
from buoy.core.ids import RunId
from buoy.core.log.wording import counted
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm.allocate import Allocated, allocate
from buoy.operations.slurm.allocations import (
    AllocationsCancelled,
    ClusterReport,
    SlurmJobs,
    cancel_allocations,
    cluster_report,
    reset_actions,
    slurm_jobs,
)
from buoy.wiring.slurm import open_slurm, slurm_site


@click.group("slurm")
def slurm_group() -> None:
    """Look after the Slurm allocations of a batch run. Each command takes --store and --json.

    \b
    Example:
      buoy slurm regenerate nightly-7c2a --account bio --submit

    Exit code: 0 done, 1 an allocation was refused, 2 bad input, 5 store or Slurm unusable.
    """


@slurm_group.command("regenerate")
@run_argument
@allocation_options
@click.option("--submit", is_flag=True, help="Submit the allocations. Without it they are planned for a later call.")
@click.option("--dry-run", is_flag=True, help="Only show the plan; record and submit nothing.")
@shared_options
def regenerate(run_id: str, submit: bool, dry_run: bool, store: str | None, as_json: bool, **given: Any) -> int:
    """Plan allocations for all pending jobs of a run.

    Jobs are grouped by what they need and whether they wait for others. What live allocations serve is subtracted, so a
    second call plans nothing more. Groups that wait get an action that asks for allocations when a job is ready. It
    replaces all such actions that wait now.

    \b
    Example:
      buoy slurm regenerate nightly-7c2a --account bio --submit

    Exit code: 0 planned, submitted or nothing to do, 1 an allocation was refused, 2 bad input, 5 store or Slurm
    unusable.
    """
    options = msgspec.convert(given, AllocationChoice)
    found = go(_regenerate(RunId(run_id), store, options, submit=submit, dry_run=dry_run))
    if as_json:
        print_json(found)
    else:
        say("\n".join(allocated_lines(found)))
    return Exit.OK if found.complete else Exit.FAILED


async def _regenerate(
    run_id: RunId, store: str | None, options: AllocationChoice, *, submit: bool, dry_run: bool
) -> Allocated:
    async with connected(store) as client:
        site = slurm_site(client, check_store(store), run_id, (await read_batch(client, run_id)).plan)
        wishes = await options.wishes(client, run_id)
        return await allocate(site, run_id, wishes, recovery=True, submit=submit, dry_run=dry_run, say=_say)


def _say(text: str) -> None:
    say(text, err=True)


@slurm_group.command("allocations")
@run_argument
@shared_options
def allocations(run_id: str, store: str | None, as_json: bool) -> int:
    """List the allocations of a run, as its log has them. `buoy sync-status` compares them with Slurm."""
    found = go(_report(RunId(run_id), store))
    if as_json:
        print_json(found)
        return Exit.OK
    for each in found.allocations:
        cause = f"  {each.cause}" if each.cause else ""
        say(f"{each.name}  {each.status}  job {each.job_id or '-'}  {each.scheduler}{cause}")
    say(counted(len(found.allocations), "allocation"), err=True)
    return Exit.OK


@slurm_group.command("jobs")
@run_argument
@click.option("--status", "statuses", multiple=True, metavar="STATUS", help="Only jobs with this status. Repeatable.")
@shared_options
def jobs(run_id: str, statuses: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """List the jobs of a run with their schedulers, and the allocations that they run in or were lost with."""
    found = go(_jobs(RunId(run_id), store))
    shown = [each for each in found.jobs if not statuses or each.status in statuses]
    if as_json:
        print_json({"run_id": found.run_id, "jobs": shown})
        return Exit.OK
    for each in shown:
        place = f"  {each.allocation}  job {each.job_id or '-'}" if each.allocation else ""
        cause = f"  {each.cause}" if each.cause else ""
        say(f"{each.job}  {each.status}  {each.scheduler or 'no scheduler'}{place}{cause}")
    say(counted(len(shown), "job"), err=True)
    return Exit.OK


async def _jobs(run_id: RunId, store: str | None) -> SlurmJobs:
    async with inspected(store) as at:
        return await slurm_jobs(at, run_id)


@slurm_group.command("actions")
@run_argument
@shared_options
def actions(run_id: str, store: str | None, as_json: bool) -> int:
    """List the actions of a run, of its spec and of its plans: trigger, kind, and whether they were executed."""
    found = go(_report(RunId(run_id), store))
    if as_json:
        print_json({"run_id": found.run_id, "actions": found.actions})
        return Exit.OK
    for each in found.actions:
        say(action_line(each))
    say(counted(len(found.actions), "action"), err=True)
    return Exit.OK


async def _report(run_id: RunId, store: str | None) -> ClusterReport:
    async with inspected(store) as at:
        return await cluster_report(at, run_id)


@slurm_group.command("cancel")
@run_argument
@click.option("--waiting-only", is_flag=True, help="Leave allocations alone that have started.")
@shared_options
def cancel(run_id: str, waiting_only: bool, store: str | None, as_json: bool) -> int:
    """Cancel the allocations of a run. The run itself stays: its jobs wait for other runners."""
    found = go(_cancel(RunId(run_id), store, waiting_only=waiting_only))
    if as_json:
        print_json(found)
    else:
        say(f"{counted(len(found.job_ids), 'allocation')} cancelled")
    return Exit.OK


async def _cancel(run_id: RunId, store: str | None, *, waiting_only: bool) -> AllocationsCancelled:
    async with inspected(store) as at:
        return await cancel_allocations(at, open_slurm(), run_id, waiting_only=waiting_only)


@slurm_group.command("reinitialize")
@run_argument
@shared_options
def reinitialize(run_id: str, store: str | None, as_json: bool) -> int:
    """Reset the actions of a run: recovery actions are deleted, all others may fire again."""
    found = go(_reset(RunId(run_id), store))
    if as_json:
        print_json({"run_id": found.run_id, "actions": found.actions})
    else:
        say(f"{counted(len(found.actions), 'action')} left")
    return Exit.OK


async def _reset(run_id: RunId, store: str | None) -> ClusterReport:
    async with connected(store) as client:
        return await reset_actions(client, run_id)
