"""Explanation: what one run is doing or waiting for, what is wrong with it, and what a person can do."""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.diagnosis.facts import ClusterFacts
from buoy.core.explain.explain import Explanation, explain, explain_broken
from buoy.core.explain.phrases import Wording
from buoy.core.limits import STALE_AFTER_S
from buoy.engine.client.client import Client
from buoy.errors import CorruptLog
from buoy.recovery.evidence import facts_of_run, store_facts
from buoy.recovery.fleet import read_fleet


async def explain_run(client: Client, run_id: str, words: Wording, cluster: ClusterFacts | None = None) -> Explanation:
    """One run in plain words; one that cannot be read is explained as that. `cluster`: what it has at a scheduler."""
    try:
        record = await client.record(run_id)
    except CorruptLog as error:
        return explain_broken(run_id, str(error), words)
    fleet = await read_fleet(client.store, client.liveness)
    facts, _ = await facts_of_run(client.store, fleet, record, stale_after_s=STALE_AFTER_S)
    # What the scheduler says is newer than the log.
    ended = () if cluster is None else {each.allocation for each in cluster.orphans if each.code in ("J1", "J2")}
    allocations = max(facts.allocations - len(ended), 0)
    facts = replace(facts, store=await store_facts(client.store), cluster=cluster, allocations=allocations)
    return explain(facts, words)
