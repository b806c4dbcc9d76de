"""Recovery of a batch run: orphans first, then its failed jobs, then allocations for what is pending.

Invariant: a dry run shows orphans and failed jobs, and plans nothing: what it would count as served is not corrected.
"""

from __future__ import annotations

import msgspec

from buoy.core.batch.resources import Correction, check_correction
from buoy.core.batch.sizing import Wishes
from buoy.core.ids import RunId
from buoy.core.log.events import ResetBy
from buoy.engine.client.client import Client
from buoy.errors import CorruptLog
from buoy.operations.access import StoreAccess
from buoy.operations.batch.jobs import read_batch
from buoy.operations.batch.recover import JobsRecovered, plan_recovery, send_resets
from buoy.operations.slurm.allocate import Allocated, allocate
from buoy.operations.slurm.cluster_log import read_cluster, read_view
from buoy.operations.slurm.pending_jobs import views_of
from buoy.operations.slurm.submission import Site
from buoy.operations.slurm.sync import Synced, sync_status


class SlurmRecovered(msgspec.Struct, frozen=True):
    """What was found at the cluster, and the new plan. `allocated` None: a dry run."""

    synced: Synced
    allocated: Allocated | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether jobs wait for an allocation that no process has asked Slurm for."""
        if self.allocated is None:
            return self.synced.stuck
        return not self.allocated.complete or (self.allocated.pending > 0 and not self.allocated.served)


async def is_on_slurm(access: StoreAccess, run_id: RunId) -> bool:
    """Whether allocations were ever planned for a batch run. A log that cannot be read is another matter's."""
    try:
        return bool((await read_cluster(access, await read_batch(access, run_id))).schedulers)
    except CorruptLog:
        return False


async def correct_orphans(site: Site, run_id: RunId, *, dry_run: bool) -> Synced:
    """The first step of a recovery: lost allocations and runners must not hold jobs."""
    return (await sync_status(site.client, site.batch, run_id, dry_run=dry_run))[0]


async def recover_jobs(
    client: Client,
    run_id: RunId,
    rule: Correction,
    *,
    retry_unknown: bool = False,
    dry_run: bool = False,
    recovery: ResetBy = "person",
) -> JobsRecovered:
    """Resets failed jobs, and lost ones whose limits have to grow; allocations are a part of the evidence.

    A job whose reset waits in the inbox is shown as such, and is not reset twice.
    """
    view = await read_view(client, run_id)
    plan = plan_recovery(
        view.batch, check_correction(rule), retry_unknown=retry_unknown, cluster=view.cluster, views=views_of(view)
    )
    shown = tuple(msgspec.structs.replace(each, waiting=each.leaf in view.resets) for each in plan)
    return JobsRecovered(run_id, dry_run, shown, "" if dry_run else await send_resets(client, run_id, shown, recovery))


async def plan_again(site: Site, run_id: RunId, wishes: Wishes, *, submit: bool) -> Allocated:
    """The last step: allocations for all that is pending now, jobs that were reset included."""
    return await allocate(site, run_id, wishes, recovery=True, submit=submit)
