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
from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.core.log.cluster_changes import ActionEnded, AllocationsAsked
from buoy.core.log.wording import counted
from buoy.operations.access import StoreAccess
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm.allocate import Allocated
from buoy.operations.slurm.cluster_log import read_cluster
from buoy.operations.slurm.tend import Tended
from buoy.wiring.slurm import one_profile

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--account", metavar="NAME", help="Account that Slurm charges."),
    click.option("--partition", metavar="NAME", help="Partition of the allocations. [the default, or one that fits]"),
    click.option("--profile", metavar="NAME", help="Take partitions from this profile (`buoy hpc`). [Slurm is asked]"),
    click.option("--walltime", metavar="TIME", callback=span, help="Time of each allocation. [1h, or what jobs need]"),
    click.option("--single-allocation/--no-single-allocation", default=None,
                 help="Ask for one allocation with several nodes per group."),
    click.option("--group-by", type=click.Choice(["resources", "partition"]),
                 help="Give jobs of the same resources, or of the same partition, one scheduler. [resources]"),
    click.option("--requeue/--no-requeue", default=None,
                 help="Let Slurm queue a preempted allocation again under its id."),
    click.option("--max-allocations", type=click.IntRange(1, 10_000),
                 help=f"Have at most this many per group at a time. [{ALLOCATIONS_MAX}]"),
    click.option("--prologue", metavar="LINES", help="Lines of the batch script before its runner starts."),
)  # fmt: skip


def allocation_options(function: F) -> F:
    """What a person wants of allocations."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class AllocationChoice(msgspec.Struct, frozen=True, kw_only=True):
    """These options as they were given. None: as they were for the run's last plan."""

    account: str | None
    partition: str | None
    profile: str | None
    walltime: float | None
    group_by: str | None
    requeue: bool | None
    single_allocation: bool | None
    max_allocations: int | None
    prologue: str | None

    async def wishes(self, access: StoreAccess, run_id: RunId) -> Wishes:
        """What these options and those of earlier commands for that run amount to."""
        return self.after((await read_cluster(access, await read_batch(access, run_id))).asked)

    def after(self, earlier: AllocationsAsked) -> Wishes:
        given = {name: value for name, value in msgspec.structs.asdict(self._asked).items() if value is not None}
        asked = msgspec.structs.replace(earlier, **given)
        profile = one_profile(asked.profile).profile if asked.profile else None
        return Wishes(
            partitions=() if profile is None else profile.kinds(),
            by_partition=bool(asked.by_partition),
            requeue=bool(asked.requeue),
            account=asked.account or (None if profile is None else profile.account),
            partition=asked.partition or None,
            walltime_s=asked.walltime_s,
            # Limits of jobs may have been raised since an earlier command.
            walltime_firm=self.walltime is not None,
            allocations_max=asked.allocations_max or ALLOCATIONS_MAX,
            single=bool(asked.single),
            prologue=asked.prologue or "",
            asked=asked,
        )

    @property
    def _asked(self) -> AllocationsAsked:
        return AllocationsAsked(
            account=self.account,
            partition=self.partition,
            profile=self.profile,
            walltime_s=self.walltime,
            by_partition=None if self.group_by is None else self.group_by == "partition",
            requeue=self.requeue,
            single=self.single_allocation,
            allocations_max=self.max_allocations,
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


_WHEN = {"on_jobs_ready": ", when any of them is ready", "on_jobs_complete": ", when all of them are complete"}


def group_line(group: PlannedGroup) -> str:
    """What one group of jobs gets."""
    served = f", {group.served} served already" if group.served else ""
    later = _WHEN.get(group.trigger or ("on_jobs_ready" if group.deferred else ""), "")
    return (
        f"{group.scheduler}: {counted(group.jobs, 'job')}{served}; {counted(group.allocations, 'allocation')} of "
        f"{span_text(group.walltime_s)}{later}"
    )


def orphan_lines(orphans: Iterable[ClusterOrphan], run_id: str, words: Wording, *, dry_run: bool) -> list[str]:
    """Findings about allocations of a run, for a person."""
    remedy = words.command("slurm", "regenerate", run_id, "--submit")
    found = [_orphan_line(each, remedy, dry_run=dry_run) for each in allocation_findings(tuple(orphans))]
    return found or ["no orphans: every allocation is accounted for"]


def tended_lines(tended: Tended, run_id: str, words: Wording, *, as_json: bool) -> list[str]:
    """What one look at a run on Slurm found and did."""
    if as_json:
        return [] if tended == Tended() else [json_line({"tended": tended})]
    lines = [] if not tended.orphans else orphan_lines(tended.orphans, run_id, words, dry_run=False)
    if tended.unknown is not None:
        said = "the look ended early" if tended.reset else "nothing was changed"
        lines.append(f"{said}: {tended.unknown}")
    if tended.given_up is not None:
        remedy = words.command("slurm", "regenerate", run_id, "--submit")
        lines.append(f"no further allocation is asked for: {tended.given_up}, then ask for the next one by `{remedy}`")
    if tended.reset:
        lines.append(f"reset {counted(len(tended.reset), 'job')}: {', '.join(tended.reset[:5])}")
    lines += [f"asked for {each.name}: {each.job_id or each.problem}" for each in tended.submitted]
    lines += [action_end_line(each) for each in tended.actions]
    see = words.command("slurm", "actions", run_id)
    lines += [f"action {each} was begun before, and its end is not recorded; see `{see}`" for each in tended.unfinished]
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


def _orphan_line(finding: Finding, remedy: str, *, dry_run: bool) -> str:
    if finding.code == "J7":
        return f"{finding.text()}; run `{remedy}`"
    would = "would correct: " if dry_run and finding.trouble else ""
    return f"{finding.code} {would}{finding.reason}"
