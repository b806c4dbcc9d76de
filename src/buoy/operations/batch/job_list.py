"""The list of jobs of a batch run, and why the run as a whole does not continue."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from buoy.core.batch.allocations import AllocationStatus
from buoy.core.batch.jobs import JobStatus, JobView, brief_views, counts, with_results
from buoy.core.diagnosis.health import TROUBLES, Health, judge
from buoy.core.ids import RunId
from buoy.core.log.wording import counted
from buoy.operations.access import StoreAccess
from buoy.operations.batch.jobs import BatchLog, read_batch, read_lots
from buoy.operations.slurm.cluster_log import read_cluster
from buoy.recovery.evidence import facts_of_page
from buoy.recovery.fleet import read_fleet


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of a run that were asked for, and how many of all have each status. `left_out`: beyond the limit."""

    run_id: RunId
    status: str
    jobs: tuple[JobView, ...]
    counts: dict[JobStatus, int]
    left_out: int = 0
    # Why the run as a whole does not continue, if it does not.
    trouble: str | None = None


async def list_jobs(
    access: StoreAccess,
    run_id: RunId,
    statuses: Collection[str] = (),
    names: Collection[str] = (),
    limit: int | None = None,
) -> Jobs:
    """The jobs of a run, or those with these statuses or names; at most that many of them."""
    batch = await read_batch(access, run_id)
    views = brief_views(batch.plan, batch.log, await read_lots(access, batch.state), batch.state)
    found = [
        view for view in views if (not statuses or view.status in statuses) and (not names or view.job in names)
    ]  # fmt: skip
    shown = with_results(batch.log, batch.state, found[:limit])
    left_out, trouble = len(found) - len(shown), await run_trouble(access, batch)
    return Jobs(run_id, str(batch.state.status), tuple(shown), counts(views), left_out, trouble)


async def run_trouble(access: StoreAccess, batch: BatchLog) -> str | None:
    """Why a run does not continue, by the same verdict as in lists of runs; None: it is healthy.

    A run that nothing drives waits for its allocations, as long as one of them is queued or starts.
    """
    record = await access.store.run(batch.document.run_id)
    if record is None:
        return None
    facts = await facts_of_page(access.store, await read_fleet(access.store, access.liveness), [record])
    verdict = judge(facts[0])
    if verdict.health is Health.IDLE and facts[0].allocations:
        live = [each for each in (await read_cluster(access, batch)).live if each.job_id is not None]
        active = sum(each.status is AllocationStatus.ACTIVE for each in live)
        return f"waiting for Slurm: {counted(len(live), 'allocation')}, {active} of them running"
    return f"{verdict.health}: {'; '.join(verdict.reasons)}" if verdict.health in TROUBLES else None
