"""A look at what a run has at its cluster, for an explanation: nothing is changed, and nothing has to answer."""

from __future__ import annotations

from buoy.core.diagnosis.facts import ClusterFacts, UnfinishedAction
from buoy.core.ids import RunId
from buoy.engine.client.client import Client
from buoy.errors import Problem
from buoy.operations.slurm.cluster_log import read_view
from buoy.operations.slurm.sync import sync_status
from buoy.ports.batch import BatchSystem


async def look_at_cluster(client: Client, run_id: RunId, batch: BatchSystem | None) -> ClusterFacts | None:
    """What the log, the inbox and the scheduler say; None: no allocations were ever planned for the run.

    A scheduler that gives no answer leaves only its reason.
    """
    view = await read_view(client, run_id)
    if not view.cluster.schedulers:
        return None
    begun = tuple(UnfinishedAction(action, entry.by, entry.at) for action, entry in view.cluster.begun.items())
    if batch is None:
        return ClusterFacts(unfinished=begun, unasked="no Slurm commands are on this machine")
    try:
        synced, _ = await sync_status(client, batch, run_id, dry_run=True, missed=(), view=view)
    except Problem as error:
        return ClusterFacts(unfinished=begun, unasked=str(error))
    return ClusterFacts(orphans=synced.orphans, unfinished=begun)
