"""Allocate: plans allocations for the pending jobs of a run, records the plan, and submits it if that is wanted.

Invariants: a plan and its intents are one message, so two terminals never plan the same. A dry run records nothing and
submits nothing. Without submission the intents stay for a later call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from buoy.core.batch.actions import NodeRequest, covered_jobs, foreseen
from buoy.core.batch.allocations import AllocationStatus, ClusterState
from buoy.core.batch.jobs import JobStatus, JobView
from buoy.core.batch.regenerate import PendingJob, PlannedGroup, Regenerated, regenerate
from buoy.core.batch.resources import ONE_CPU
from buoy.core.batch.sizing import Wishes
from buoy.core.batch.slurm_text import Partition, SlurmJob
from buoy.core.ids import RunId
from buoy.core.log.cluster_changes import ActionEnded, ClusterChange
from buoy.core.spec.plan import SpecPlan
from buoy.operations.slurm.cluster_log import ClusterView, change_cluster, read_view
from buoy.operations.slurm.pending_jobs import jobs_of
from buoy.operations.slurm.submission import Site, SubmittedAllocation, submit_planned


class Allocated(msgspec.Struct, frozen=True):
    """A plan, and what was submitted. `pending` 0: there is nothing to do."""

    run_id: RunId
    dry_run: bool
    pending: int
    groups: tuple[PlannedGroup, ...]
    planned: tuple[str, ...]
    submitted: tuple[SubmittedAllocation, ...] = ()
    # Whether an allocation is at Slurm, or was when this was planned.
    served: bool = False
    # Actions of the spec whose commands ran with it.
    actions: tuple[ActionEnded, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing that was to be submitted or run failed."""
        ran = all(each.failed is None for each in self.actions)
        return ran and all(each.job_id is not None for each in self.submitted)


async def allocate(
    site: Site,
    run_id: RunId,
    wishes: Wishes,
    *,
    recovery: bool,
    submit: bool,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Allocated:
    """Plans for all pending jobs, and submits what is planned."""
    partitions = await partitions_of(site, wishes)
    known = await read_view(site.client, run_id)
    running = await ask_running(site, known)
    made: list[Regenerated] = []
    views: list[ClusterView] = []

    def plan(view: ClusterView) -> Sequence[ClusterChange]:
        views[:] = [view]
        view.cluster.note_left(running)
        made.append(_plan(site, view, partitions, wishes, recovery=recovery))
        new = made[-1].pending > 0 and wishes.asked != view.cluster.asked
        return (wishes.asked, *made[-1].changes) if new else made[-1].changes

    if dry_run:
        plan(known)
    else:
        await change_cluster(site.client, run_id, plan, known)
    last = made[-1]
    submitted: list[SubmittedAllocation] = []
    if submit and not dry_run:
        submitted = await submit_planned(site, run_id, last.names, say)
    served = any(each.job_id for each in submitted) or any(each.job_id for each in views[-1].cluster.live)
    return Allocated(run_id, dry_run, last.pending, last.groups, last.names, tuple(submitted), served)


async def ask_running(site: Site, view: ClusterView) -> Mapping[str, list[SlurmJob]]:
    """What the queue says about the allocations that run: how much of their time is left. One question at most."""
    names = [each.name for each in view.cluster.live if each.status is AllocationStatus.ACTIVE]
    return (await site.batch.states(names, 0.0, accounts=False)).jobs if names else {}


async def partitions_of(site: Site, wishes: Wishes) -> Sequence[Partition]:
    """Those of the profile that was chosen, or of the live cluster."""
    return wishes.partitions or await site.batch.partitions()


def preview(plan: SpecPlan, partitions: Sequence[Partition], wishes: Wishes) -> Regenerated:
    """What a run of that spec would get, before it is stored: now, and when its actions fire."""
    jobs = []
    for number, planned in enumerate(plan.steps):
        needs = tuple(plan.steps[each].id for each in plan.needs[number])
        status = JobStatus.BLOCKED if needs else JobStatus.UNINITIALIZED
        jobs.append(PendingJob(JobView(job=planned.id, status=status), planned.step.resources or ONE_CPU, needs))
    covered = covered_jobs(plan)
    made = regenerate(jobs, ClusterState(()), partitions, wishes, str, recovery=False, covered=covered)
    later = foreseen(jobs, plan, NodeRequest(partitions, wishes, str))
    return Regenerated(len(jobs), (*made.groups, *later), made.changes)


def _plan(
    site: Site, view: ClusterView, partitions: Sequence[Partition], wishes: Wishes, *, recovery: bool
) -> Regenerated:
    run_id = view.batch.document.run_id
    covered = () if recovery else covered_jobs(view.batch.plan)
    names = namer(site, run_id)
    return regenerate(jobs_of(view), view.cluster, partitions, wishes, names, recovery=recovery, covered=covered)


def namer(site: Site, run_id: RunId) -> Callable[[int], str]:
    """Names that no other job of the cluster has."""
    return lambda number: f"buoy.{run_id}.{number}.{site.client.ids.nonce()[:12]}"
