"""`buoy submit`: store a batch run, whose commands runners take as jobs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from buoy.cli.terminal.options.slurm import AllocationChoice, allocated_lines, allocation_options, group_line
from buoy.cli.terminal.options.targets import named_target, param_option
from buoy.cli.terminal.output import print_json, results_alone
from buoy.cli.terminal.program import Exit, calls_option, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.config import configured_store, person
from buoy.core.batch.regenerate import Regenerated
from buoy.core.batch.resources import group_name
from buoy.core.log.cluster_changes import AllocationsAsked
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.batch import submit as submitting
from buoy.operations.batch.submit import Submitted
from buoy.operations.slurm.actions import ActionsFired, fire_actions
from buoy.operations.slurm.allocate import Allocated, allocate, preview
from buoy.operations.targets.spec_files import Target
from buoy.wiring.app import open_client
from buoy.wiring.slurm import check_reach, open_slurm, slurm_site


@click.command()
@click.argument("spec", metavar="FILE.yaml")
@param_option
@calls_option
@click.option(
    "--id", "run_id", metavar="ID", help="Run id. Submitting the same id twice with the same input is one run."
)
@click.option("--slurm", is_flag=True, help="Also ask Slurm for allocations that run the jobs.")
@click.option("--dry-run", is_flag=True, help="With --slurm: show the allocations, store and submit nothing.")
@allocation_options
@shared_options
def submit(
    spec: str,
    params: tuple[str, ...],
    prefixes: tuple[str, ...],
    run_id: str | None,
    slurm: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Store a batch run of a spec, and print its id.

    Its commands are jobs. Start `buoy runner --run ID` on each machine that is to run some of them, or let --slurm ask
    for allocations: each starts a runner per node. Jobs that wait for others get allocations when they are ready, by
    `buoy watch ID --recover`. The folder must be on a disk that all nodes share.

    \b
    Example:
      buoy submit nightly.yaml --param k=1:500
      buoy submit nightly.yaml --slurm --account bio --partition long --walltime 4h

    Exit code: 0 submitted (or it exists already), 1 an allocation was refused, 2 bad input, 5 store or Slurm unusable.
    """
    if dry_run and not slurm:
        raise BadInput("--dry-run is only for --slurm; `buoy validate` checks a spec without storing it")
    options = msgspec.convert(given, AllocationChoice)
    with results_alone(as_json=as_json):
        found = named_target(spec, None, (), params, prefixes)
        if dry_run:
            return _show(go(_preview(found, options)), as_json=as_json)
        made, allocated = go(_submit(found, run_id, store, options if slurm else None))
    return _print_submitted(made, allocated, store, as_json=as_json)


def _show(plan: Regenerated, *, as_json: bool) -> int:
    if as_json:
        print_json({"dry_run": True, "pending": plan.pending, "groups": plan.groups})
    else:
        click.echo("\n".join(group_line(each) for each in plan.groups))
    return Exit.OK


def _print_submitted(made: Submitted, allocated: Allocated | None, store: str | None, *, as_json: bool) -> int:
    code = Exit.OK if allocated is None or allocated.complete else Exit.FAILED
    if as_json:
        groups = [
            {"group": group_name(each.key.resources), "deferred": each.key.has_dependencies, "jobs": len(each.jobs)}
            for each in made.groups
        ]
        plain: dict[str, Any] = {"run_id": made.run_id, "created": made.created, "jobs": made.jobs, "groups": groups}
        print_json(plain if allocated is None else {**plain, "slurm": allocated})
        return code
    click.echo(made.run_id)
    there = "" if made.created else "it was there already; "
    if allocated is None:
        runner = wording(store, local).command("runner", "--run", made.run_id)
        click.echo(f"{there}{counted(made.jobs, 'job')}; run them on each machine: {runner}", err=True)
    else:
        click.echo("\n".join([*([there] if there else []), *allocated_lines(allocated)]), err=True)
    return code


async def _submit(
    target: Target, run_id: str | None, store: str | None, options: AllocationChoice | None
) -> tuple[Submitted, Allocated | None]:
    url = configured_store(store)
    slurm = None if options is None else open_slurm()
    if slurm is not None:
        check_reach(url)
    async with open_client(url, actor=person()) as client:
        if options is None or slurm is None:
            return await submitting.submit(client, target, run_id), None
        # What no partition could run is refused before anything is stored.
        plan = submitting.batch_plan(target)
        first = options.after(AllocationsAsked())
        preview(plan, first.partitions or await slurm.partitions(), first)
        made = await submitting.submit(client, target, run_id)
        site, wishes = slurm_site(client, url, made.run_id, plan), await options.wishes(client, made.run_id)
        allocated = await allocate(site, made.run_id, wishes, recovery=False, submit=True)
        fired = await fire_actions(site, made.run_id, wishes) if plan.spec.actions else ActionsFired()
        return made, msgspec.structs.replace(
            allocated, submitted=(*allocated.submitted, *fired.submitted), actions=fired.ended
        )


async def _preview(target: Target, options: AllocationChoice) -> Regenerated:
    wishes = options.after(AllocationsAsked())
    return preview(submitting.batch_plan(target), wishes.partitions or await open_slurm().partitions(), wishes)
