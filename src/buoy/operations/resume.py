"""Resuming: which runs were left behind: their process died, or stopped, and nobody has taken them up yet.

Invariant: looking changes nothing. A run that waits for a time, a message or a person is not left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from buoy.core.diagnosis.health import Health, judge
from buoy.core.ids import RunId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.lifecycle import ACTIVE, Status
from buoy.engine.client.client import Client
from buoy.ports.records import RunQuery
from buoy.recovery.evidence import facts_of_page, read_fleet


class AbandonedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that was left behind. `broken`: it cannot be read, and so it cannot be brought back."""

    run_id: RunId
    workflow: str
    status: str
    health: str
    why: str
    broken: bool = False


async def lost_runs(client: Client) -> AsyncIterator[AbandonedRun]:
    """Dead, stalled and interrupted ones of the client's stack and env, the newest first."""
    cursor: str | None = None
    query = RunQuery(statuses=tuple(sorted(ACTIVE)), stack=client.stack, env=client.env)
    while True:
        page = await client.runs(query, cursor, RUNS_PAGE_MAX)
        # After the runs: a runner that took one of them meanwhile must be known.
        fleet = await read_fleet(client.store, client.liveness)
        for one in page.broken:
            yield AbandonedRun(RunId(one.id), "", "", Health.UNKNOWN, f"it cannot be read: {one.reason}", broken=True)
        for facts in await facts_of_page(client.store, fleet, page.runs):
            verdict, doc = judge(facts), facts.document
            left = doc.status is Status.INTERRUPTED and facts.holder is None
            if left or verdict.health in (Health.DEAD, Health.STALLED):
                yield AbandonedRun(doc.run_id, doc.workflow, doc.status, verdict.health, "; ".join(verdict.reasons))
        cursor = page.cursor
        if cursor is None:
            return
