"""Jobs of a run on a cluster: how each stands, and the resources that it needs now.

Invariant: a reset that waits in the inbox counts, so that a plan is made for the limits that the jobs will have.
"""

from __future__ import annotations

import msgspec

from buoy.core.batch.jobs import JobStatus, JobView, job_views
from buoy.core.batch.regenerate import PendingJob
from buoy.core.batch.resources import ONE_CPU
from buoy.core.ids import leaf_id
from buoy.core.spec.model import Resources
from buoy.operations.slurm.cluster_log import ClusterView


def views_of(view: ClusterView) -> list[JobView]:
    """The jobs of a run."""
    return job_views(view.batch.document.run_id, view.batch.plan, view.batch.log, view.lots)


def jobs_of(view: ClusterView) -> list[PendingJob]:
    """The jobs of a run, with the resources that they need now. Those that are reset count as ready."""
    plan, found = view.batch.plan, []
    for number, job in enumerate(views_of(view)):
        leaf = leaf_id("", job.job, 1)
        resources = plan.steps[number].step.resources or ONE_CPU
        for changed in (view.batch.state.limits.get(leaf), view.resets.get(leaf)):
            if changed is not None:
                resources = _changed(resources, changed.memory_bytes, changed.time_s)
        if leaf in view.resets and job.status in (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.DISABLED):
            job = msgspec.structs.replace(job, status=JobStatus.READY)
        found.append(PendingJob(job, resources, tuple(plan.steps[each].id for each in plan.needs[number])))
    return found


def _changed(resources: Resources, memory_bytes: int | None, time_s: float | None) -> Resources:
    return msgspec.structs.replace(
        resources,
        memory_bytes=resources.memory_bytes if memory_bytes is None else memory_bytes,
        time_s=resources.time_s if time_s is None else time_s,
    )
