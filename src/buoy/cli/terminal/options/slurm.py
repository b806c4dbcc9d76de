"""Options and lines that the commands about allocations share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
import msgspec

from buoy.cli.terminal.output import json_line
from buoy.cli.terminal.program import span
from buoy.core.batch.allocations import ClusterAction
from buoy.core.batch.orphans import ClusterOrphan
from buoy.core.batch.regenerate import PlannedGroup
from buoy.core.batch.sizing import ALLOCATIONS_MAX, Wishes
from buoy.core.batch.slurm_text import span_text
from buoy.core.diagnosis.allocation_rules import allocation_findings
from buoy.core.diagnosis.findings import Finding
from buoy.core.log.cluster_changes import ActionEnded
from buoy.core.log.wording import counted
from buoy.operations.slurm.allocate import Allocated
from buoy.operations.slurm.tend import Tended
from buoy.wiring.slurm import one_profile

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--account", metavar="NAME", help="Account that Slurm charges."),
    click.option("--partition", metavar="NAME", help="Partition of the allocations. [the default, or one that fits]"),
    click.option("--profile", metavar="NAME", help="Take partitions from this profile (`buoy hpc`). [Slurm is asked]"),
    click.option("--walltime", metavar="TIME", callback=span, help="Time of each allocation. [1h, or what jobs need]"),
    click.option("--single-allocation", is_flag=True, help="Ask for one allocation with several nodes per group."),
    click.option("--group-by", type=click.Choice(["resources", "partition"]), default="resources", show_default=True,
                 help="Give jobs of the same resources, or of the same partition, a scheduler of their own."),
    click.option("--requeue", is_flag=True, help="Let Slurm queue a preempted allocation again under its id."),
    click.option("--max-allocations", type=click.IntRange(1, 10_000), default=ALLOCATIONS_MAX, show_default=True,
                 help="Ask for at most this many per group."),
    click.option("--prologue", metavar="LINES", default="", help="Lines of the batch script before its runner starts."),
)  # fmt: skip


def allocation_options(function: F) -> F:
    """What a person wants of allocations."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class AllocationChoice(msgspec.Struct, frozen=True, kw_only=True):
    """These options as they were given."""

    account: str | None
    partition: str | None
    profile: str | None
    walltime: float | None
    group_by: str
    requeue: bool
    single_allocation: bool
    max_allocations: int
    prologue: str

    @property
    def wishes(self) -> Wishes:
        profile = None if self.profile is None else one_profile(self.profile).profile
        return Wishes(
            partitions=() if profile is None else profile.kinds(),
            by_partition=self.group_by == "partition",
            requeue=self.requeue,
            account=self.account or (None if profile is None else profile.account),
            partition=self.partition,
            walltime_s=self.walltime,
            allocations_max=self.max_allocations,
            single=self.single_allocation,
            prologue=self.prologue,
        )


def allocated_lines(found: Allocated) -> list[str]:
    """A plan and what became of it, for a person."""
    if not found.pending and not found.submitted and not found.actions:
        return ["nothing to do: no job is pending"]
    lines = [group_line(group) for group in found.groups]
    would = "would be " if found.dry_run else ""
    lines.append(f"{counted(len(found.planned), 'allocation')} {would}planned for {counted(found.pending, 'job')}")
    for each in found.submitted:
        lines.append(f"  {each.name}: " + (f"job {each.job_id}" if each.job_id else f"not submitted: {each.problem}"))
    return [*lines, *(action_end_line(each) for each in found.actions)]


def group_line(group: PlannedGroup) -> str:
    """What one group of jobs gets."""
    served = f", {group.served} served already" if group.served else ""
    later = ", when any of them is ready" if group.deferred else ""
    return (
        f"{group.scheduler}: {counted(group.jobs, 'job')}{served}; {counted(group.allocations, 'allocation')} of "
        f"{span_text(group.walltime_s)}{later}"
    )


def orphan_lines(orphans: Iterable[ClusterOrphan], *, dry_run: bool) -> list[str]:
    """Findings about allocations, for a person."""
    found = [_orphan_line(each, dry_run=dry_run) for each in allocation_findings(tuple(orphans))]
    return found or ["no orphans: every allocation is accounted for"]


def tended_lines(tended: Tended, *, as_json: bool) -> list[str]:
    """What one look at a run on Slurm found and did."""
    if as_json:
        return [] if tended == Tended() else [json_line({"tended": tended})]
    lines = [] if not tended.orphans else orphan_lines(tended.orphans, dry_run=False)
    if tended.unknown is not None:
        said = "the look ended early" if tended.reset else "nothing was changed"
        lines.append(f"{said}: {tended.unknown}")
    if tended.given_up is not None:
        lines.append(f"no further allocation is asked for: {tended.given_up}")
    if tended.reset:
        lines.append(f"reset {counted(len(tended.reset), 'job')}: {', '.join(tended.reset[:5])}")
    lines += [f"asked for {each.name}: {each.job_id or each.problem}" for each in tended.submitted]
    lines += [action_end_line(each) for each in tended.actions]
    lines += [f"action {each} was begun before, and its end is not recorded; see `buoy slurm actions`"
              for each in tended.unfinished]  # fmt: skip
    if tended.cancelled:
        lines.append(f"cancelled {counted(len(tended.cancelled), 'allocation')} that nothing needs")
    return lines


def action_end_line(end: ActionEnded) -> str:
    """How the commands of an action ended."""
    if end.failed is None:
        return f"action {end.action}: its commands succeeded"
    code = "" if end.exit_code is None else f" with exit code {end.exit_code}"
    how = f"{code} by {end.signal}" if end.signal else code
    return f"action {end.action}: command {end.failed} failed{how}" + (f": {end.problem}" if end.problem else "")


def action_line(action: ClusterAction) -> str:
    """One action, for a person."""
    done = f"executed by {action.executed_by}" if action.executed else "waits"
    if action.unfinished:
        done = f"begun by {action.executed_by}; its end is not recorded: it runs now, or was cut short"
    if action.end is not None and action.end.failed is not None:
        done += "; " + action_end_line(action.end).partition(": ")[2]
    recovery = "  recovery" if action.is_recovery else ""
    scheduler = f" {action.scheduler}" if action.scheduler else ""
    return f"{action.action}  {action.trigger}  {action.kind}{scheduler}  {done}{recovery}"


def _orphan_line(finding: Finding, *, dry_run: bool) -> str:
    if finding.code == "J7":
        return f"{finding.text()}; run `buoy slurm regenerate RUN --submit`"
    would = "would correct: " if dry_run and finding.trouble else ""
    return f"{finding.code} {would}{finding.reason}"
