"""Runs with a finding: a page of runs, of which only those stay that the diagnosis finds something about.

Invariant: each run of the page is examined with its log, so a page costs as much as its runs are long.
"""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.limits import STALE_AFTER_S
from buoy.engine.client.client import Client
from buoy.errors import BadInput, CorruptLog
from buoy.operations.inspect.runs import FoundRuns, RunFilter, list_runs
from buoy.recovery.recover import examine


async def runs_with_finding(
    client: Client, chosen: RunFilter, finding: str | None, *, cursor: str | None = None, limit: int = 50
) -> FoundRuns:
    """Those of the next `limit` runs that have this finding; None: all. A page may be empty although there are more."""
    if finding is None:
        return await list_runs(client, chosen, cursor=cursor, limit=limit)
    if finding not in CATALOGUE:
        raise BadInput(f"unknown finding {finding[:40]!r}; docs/recovery.md lists the codes")
    page = await list_runs(client, chosen, cursor=cursor, limit=limit)
    kept = []
    for facts in page.facts:
        try:
            seen = await examine(client, facts.document.run_id, stale_after_s=STALE_AFTER_S)
        except CorruptLog:
            if finding == "R1":
                kept.append(facts)
            continue
        if any(each.code == finding for each in seen.findings):
            kept.append(facts)
    return replace(page, facts=tuple(kept))
