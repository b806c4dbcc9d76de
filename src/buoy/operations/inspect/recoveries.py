"""Recoveries: the audit of what Buoy and people did to bring runs back, read off the logs.

Invariant: each entry is a `workflow_recovered` event; a branch that hides events hides no recovery from the audit.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log import events as e
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import BadInput, CorruptLog
from buoy.ports.records import Evidence, RunQuery

# Runs whose documents one page of the audit looks at; those without a recovery cost no more.
_PAGE = 200


class RecoveryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery: when, why, by whom, and what it hid."""

    run_id: str
    workflow: str
    seq: int
    at: float
    finding: str
    reason: str
    policy: str
    actor: str
    previous_branch: int
    new_branch: int
    cutoff_event: int
    evidence: Evidence


class RecoveryAudit(msgspec.Struct, frozen=True):
    """A page of recoveries, those of the newest runs first. `unread`: runs whose log cannot be read."""

    recoveries: tuple[RecoveryEntry, ...]
    cursor: str | None
    unread: tuple[str, ...] = ()


async def run_recoveries(client: Client, run_id: str) -> RecoveryAudit:
    """All recoveries of one run, in order."""
    doc = (await client.record(run_id)).document
    return RecoveryAudit(tuple(await _entries(client, doc.run_id, doc.workflow)), None)


async def recovery_audit(client: Client, cursor: str | None = None, limit: int = _PAGE) -> RecoveryAudit:
    """Recoveries of a page of runs. A page may be empty although `cursor` says that there are more."""
    if not 1 <= limit <= RUNS_PAGE_MAX:
        raise BadInput(f"limit must be from 1 to {RUNS_PAGE_MAX}: {limit}")
    page = await client.store.find_runs(RunQuery(), cursor, limit)
    found: list[RecoveryEntry] = []
    unread = [one.id for one in page.broken]
    for record in page.runs:
        if not record.document.recoveries:
            continue
        try:
            found += await _entries(client, record.document.run_id, record.document.workflow)
        except CorruptLog:
            unread.append(record.document.run_id)
    return RecoveryAudit(tuple(found), page.cursor, tuple(unread))


async def _entries(client: Client, run_id: RunId, workflow: str) -> list[RecoveryEntry]:
    return [
        RecoveryEntry(
            run_id=run_id,
            workflow=workflow,
            seq=event.seq,
            at=event.at,
            finding=event.body.finding,
            reason=event.body.reason,
            policy=event.body.policy,
            actor=event.body.actor,
            previous_branch=event.body.previous_branch,
            new_branch=event.body.new_branch,
            cutoff_event=event.body.cutoff_event,
            evidence=event.body.evidence,
        )
        for event in await read_log(client.store, run_id)
        if isinstance(event.body, e.WorkflowRecovered)
    ]
