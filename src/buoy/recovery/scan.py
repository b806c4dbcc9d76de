"""Scan: which runs are in trouble, and what a recovery would do about it. Only reports: whoever asks may recover them,
with a queue of his own if he likes.

Invariants: nothing is changed by looking. What finished is never read: dead runners, orphans and active runs are all
found by indexes of their own. A run that cannot be read is told as unknown, and hides no other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from buoy.core.findings import Finding
from buoy.core.ids import RunId
from buoy.core.lifecycle import ACTIVE
from buoy.core.limits import RUNS_PAGE_MAX, STALE_AFTER_S, SWEEP_ORPHANS_MAX
from buoy.core.policy import Lookup
from buoy.engine.client import Client
from buoy.errors import Problem
from buoy.ports import RunPage, RunQuery, RunRecord, Store
from buoy.recovery.recover import Recovery, recover_run
from buoy.recovery.scope import Scope

_ACTIVE = tuple(sorted(ACTIVE))
_PAGE = 200


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at. `policy`: asked first which policy a run has."""

    scope: Scope = Scope()
    stale_after_s: float = STALE_AFTER_S
    adopt: bool = False
    policy: Lookup | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One run in trouble. `action`: what a recovery would do; `error`: why it could not be judged."""

    run_id: RunId
    workflow: str
    status: str
    action: str
    reason: str | None = None
    error: str | None = None
    note: str | None = None
    findings: tuple[Finding, ...] = ()


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What one scan saw."""

    scanned: int
    healthy: int
    unknown: int
    found: tuple[Found, ...]


async def scan(client: Client, options: ScanOptions | None = None) -> Scan:
    """Looks at everything that may be in trouble."""
    chosen = options or ScanOptions()
    scanned = healthy = unknown = 0
    found: list[Found] = []
    async for record in suspects(client, chosen):
        scanned += 1
        told = await _look(client, record, chosen)
        healthy += told is None
        unknown += told is not None and told.action == "unknown"
        if told is not None:
            found.append(told)
    return Scan(scanned=scanned, healthy=healthy, unknown=unknown, found=tuple(found))


async def _look(client: Client, record: RunRecord, options: ScanOptions) -> Found | None:
    doc = record.document
    try:
        seen = await recover_run(client, doc.run_id, dry_run=True, policy=options.policy, adopt=options.adopt)
    except Problem as error:
        seen = Recovery.unread(doc.run_id, error)
    if seen.action == "none":
        return None
    return Found(
        run_id=doc.run_id,
        workflow=doc.workflow,
        status=doc.status,
        action=seen.action,
        reason=seen.reason,
        error=seen.error,
        note=seen.note,
        findings=seen.findings,
    )


async def suspects(client: Client, options: ScanOptions) -> AsyncIterator[RunRecord]:
    """Runs that deserve a look, each once: what the dead hold, orphans, and what has not moved for long."""
    store, seen = client.store, set[RunId]()
    for runner in await store.runners():
        if client.liveness.proof_of_death(runner) is None:
            continue
        async for record in held_by(store, runner.info.id):
            if options.scope.covers(record.document) and record.document.run_id not in seen:
                seen.add(record.document.run_id)
                yield record
    for orphan in await store.orphans(SWEEP_ORPHANS_MAX):
        found = await store.run(orphan.run_id)
        if found is not None and options.scope.covers(found.document) and orphan.run_id not in seen:
            seen.add(orphan.run_id)
            yield found
    cursor: str | None = None
    while True:
        page = await stale_page(store, options, cursor)
        for record in page.runs:
            if options.scope.covers(record.document) and record.document.run_id not in seen:
                yield record
        cursor = page.cursor
        if cursor is None:
            return


async def held_by(store: Store, runner: str) -> AsyncIterator[RunRecord]:
    """What a runner holds, page by page."""
    cursor: str | None = None
    while True:
        page = await store.find_runs(RunQuery(holder=runner), cursor, RUNS_PAGE_MAX)  # type: ignore[arg-type]
        for record in page.runs:
            yield record
        cursor = page.cursor
        if cursor is None:
            return


async def stale_page(store: Store, options: ScanOptions, cursor: str | None) -> RunPage:
    """The next active runs, those that have not moved for long. Bounded by what is looked at, not by what is found."""
    page = await store.find_runs(RunQuery(statuses=_ACTIVE), cursor, _PAGE)
    before = await store.now() - options.stale_after_s
    stale = tuple(record for record in page.runs if record.document.updated_at <= before)
    return RunPage(stale, page.cursor)
