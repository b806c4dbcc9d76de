"""Places in allocations: which one this process has, and which runners before it are proven dead by that.

Invariant: only a runner that stood in exactly the same place, or in an earlier start of the same job, is declared dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buoy.ports.batch import AllocationPlace
from buoy.ports.records import Evidence, RunnerInfo, RunnerRecord
from buoy.ports.store import Store


def allocation_place(variables: Mapping[str, str]) -> AllocationPlace | None:
    """The place that Slurm and the batch script tell of; None: this process is not in an allocation of Buoy."""
    name, job_id = variables.get("BUOY_ALLOCATION"), variables.get("SLURM_JOB_ID")
    if not name or not job_id:
        return None
    return AllocationPlace(
        cluster=variables.get("SLURM_CLUSTER_NAME", ""),
        job_id=job_id,
        name=name,
        restart=_number(variables.get("SLURM_RESTART_COUNT"), 0),
        task=_number(variables.get("SLURM_PROCID"), 0),
        launch=_number(variables.get("BUOY_ALLOCATION_LAUNCH"), 1),
        start=variables.get("BUOY_ALLOCATION_START", ""),
    )


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default


def predecessors(me: RunnerInfo, runners: Iterable[RunnerRecord]) -> list[RunnerRecord]:
    """The runners that stood in my place before me and are not known to be gone."""
    place = me.allocation
    if place is None:
        return []
    return [each for each in runners if each.info.id != me.id and each.gone_at is None and _before(each.info, place)]


def _before(info: RunnerInfo, place: AllocationPlace) -> bool:
    other = info.allocation
    if other is None or (other.cluster, other.job_id, other.name) != (place.cluster, place.job_id, place.name):
        return False
    if other.restart != place.restart:
        return other.restart < place.restart
    if other.start != place.start:
        # Slurm has one start of a job at a time. Only the first runner of a start is sure to be of the last one.
        return place.launch == 1 and bool(place.start)
    return other.task == place.task and other.launch < place.launch


async def declare_predecessors_dead(store: Store, me: RunnerInfo) -> int:
    """Releases what runners before this one held in its place; how many there were."""
    found = predecessors(me, await store.runners())
    for record in found:
        cause = "requeued" if record.info.allocation and record.info.allocation.restart != _restart(me) else "killed"
        why = "a later runner has its place"
        evidence: Evidence = {"runner": record.info.id, "proof": why, "cause": cause, "by": me.id}
        await store.declare_dead(record.info.id, why, cause="taken_over", evidence=evidence)
    return len(found)


def _restart(me: RunnerInfo) -> int:
    return 0 if me.allocation is None else me.allocation.restart
