"""Rules about allocations of batch runs: what a look at the scheduler showed, as findings.

Invariant: nothing is judged here that `core.batch.orphans` has not found. A recovery of the run itself does nothing
about them: `sync-status`, `recover` and `watch` correct them, where the scheduler can be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buoy.core.batch.orphans import ClusterOrphan
from buoy.core.diagnosis.findings import Evidence, Finding
from buoy.core.log.wording import counted


def allocation_findings(orphans: Iterable[ClusterOrphan]) -> Iterator[Finding]:
    """A finding for each orphan, and a healthy one for jobs that were claimed and never started."""
    for each in orphans:
        evidence: Evidence = {
            "allocation": each.allocation,
            "job_id": each.job_id,
            "cause": each.cause,
            "state": each.state,
            "runners": len(each.runners) or None,
            "jobs": len(each.jobs) or None,
        }
        known: Evidence = {name: value for name, value in evidence.items() if value is not None}
        yield Finding(code=each.code, trouble=True, reason=_reason(each), remedy="report", evidence=known)
    claimed = [job for each in orphans for job in each.claimed]
    if claimed:
        text = f"{counted(len(claimed), 'job')} had been claimed and not begun: the next runner begins them"
        yield Finding(code="J4", trouble=False, reason=text, evidence={"jobs": len(claimed)})


def _reason(orphan: ClusterOrphan) -> str:
    lost = f"; {counted(len(orphan.jobs), 'job')} lost with it" if orphan.jobs else ""
    state = f" ({orphan.state})" if orphan.state else ""
    match orphan.code:
        case "J1":
            return f"allocation {orphan.allocation} ended: {orphan.cause}{state}{lost}"
        case "J2":
            return f"allocation {orphan.allocation} ended, and no look saw it run: {orphan.cause}{state}"
        case "J3":
            place = f" with allocation {orphan.allocation}" if orphan.allocation else ""
            return f"runner {', '.join(orphan.runners)} was lost{place}{lost}"
        case "J5":
            return f"allocation {orphan.allocation} is job {orphan.job_id}; its id was not recorded"
        case "J6":
            return f"allocation {orphan.allocation} was queued again under its id{lost}"
        case "J7":
            return "jobs are ready, and no allocation that could run them is at Slurm"
