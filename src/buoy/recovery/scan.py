"""Scan: which runs are in trouble, and what a recovery would do about it. Only reports: whoever asks may recover them,
with a queue of his own if he likes.

Invariants: nothing is changed by looking. What finished is never read: dead runners, orphans and active runs are all
found by indexes of their own. A run that cannot be read is told as unknown, and hides no other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar
from zlib import crc32

import msgspec

from buoy.core.findings import Finding
from buoy.core.ids import RunId, RunnerId
from buoy.core.lifecycle import ACTIVE
from buoy.core.limits import RUNS_PAGE_MAX, STALE_AFTER_S, SUSPECT_AFTER_S, SWEEP_ORPHANS_MAX
from buoy.core.policy import Lookup
from buoy.core.time_text import in_words
from buoy.engine.client import Client
from buoy.ports import RunPage, RunQuery, RunRecord, Store
from buoy.recovery.evidence import Crew
from buoy.recovery.recover import Recovery, recover_run
from buoy.recovery.scope import Scope

T = TypeVar("T")
_ACTIVE = tuple(sorted(ACTIVE))
_PAGE = 200


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at. `scope` None: the stack and env of the client. `policy`: asked first which policy a run has."""

    scope: Scope | None = None
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
    async for suspect in suspects(client, chosen):
        scanned += 1
        told = suspect if isinstance(suspect, Found) else await _look(client, suspect, chosen)
        healthy += told is None
        unknown += told is not None and told.action == "unknown"
        if told is not None:
            found.append(told)
    return Scan(scanned=scanned, healthy=healthy, unknown=unknown, found=tuple(found))


async def _look(client: Client, record: RunRecord, options: ScanOptions) -> Found | None:
    doc = record.document
    try:
        seen = await recover_run(client, doc.run_id, dry_run=True, policy=options.policy, adopt=options.adopt)
    except Exception as error:  # noqa: BLE001 - what is wrong with one run is told, and must not stop a scan
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


async def suspects(client: Client, options: ScanOptions) -> AsyncIterator[RunRecord | Found]:
    """Runs that deserve a look, each once: what the dead hold, orphans, and what has not moved for long. An orphan that
    gives no answer is told at once."""
    store, seen, scope = client.store, set[RunId](), Scope.of(client, options.scope)
    for runner in await store.runners():
        if client.liveness.proof_of_death(runner) is None:
            continue
        async for record in held_by(store, runner.info.id):
            if scope.covers(record.document) and record.document.run_id not in seen:
                seen.add(record.document.run_id)
                yield record
    for orphan in await store.orphans(SWEEP_ORPHANS_MAX):
        try:
            found = await store.run(orphan.run_id)
        except Exception as error:  # noqa: BLE001 - as above
            seen.add(orphan.run_id)
            yield _unread(Recovery.unread(orphan.run_id, error))
            continue
        if found is not None and scope.covers(found.document) and orphan.run_id not in seen:
            seen.add(orphan.run_id)
            yield found
    cursor: str | None = None
    while True:
        page = await stale_page(store, options, cursor)
        for one in page.broken:
            if one.id not in seen:
                seen.add(RunId(one.id))
                yield _unread(Recovery.of_broken(one))
        for record in page.runs:
            if scope.covers(record.document) and record.document.run_id not in seen:
                yield record
        cursor = page.cursor
        if cursor is None:
            return


def _unread(seen: Recovery) -> Found:
    return Found(run_id=seen.run_id, workflow="", status="", action="unknown", error=seen.error)


async def held_by(store: Store, runner: RunnerId, by: str = "") -> AsyncIterator[RunRecord]:
    """What a runner holds, page by page. `by`: who asks; of many who do, each gets another order."""
    cursor: str | None = None
    while True:
        page = await store.find_runs(RunQuery(holder=runner), cursor, RUNS_PAGE_MAX)
        for record in mixed(page.runs, by, lambda record: record.document.run_id):
            yield record
        cursor = page.cursor
        if cursor is None:
            return


async def held_in_silence(client: Client, people: Crew) -> AsyncIterator[tuple[RunRecord, str]]:
    """What runners of this host hold that live and do not beat, and since when. Those elsewhere need two looks."""
    for runner in await client.store.runners():
        facts = people.get(runner.info.id)
        if not client.liveness.sees(runner) or facts.gone or (facts.beat_age_s or 0.0) <= SUSPECT_AFTER_S:
            continue
        async for record in held_by(client.store, runner.info.id):
            if not record.document.ended:
                silence = in_words(facts.beat_age_s or 0.0)
                yield record, f"runner {facts.id} holds it and has been silent for {silence}"


def mixed(items: Sequence[T], by: str, run_of: Callable[[T], RunId]) -> Sequence[T]:
    """The same in an order of one's own: sweepers that go the same way meet at every run, and all but one lose."""
    return sorted(items, key=lambda item: crc32(f"{by} {run_of(item)}".encode())) if by else items


async def stale_page(store: Store, options: ScanOptions, cursor: str | None) -> RunPage:
    """The next active runs, those that have not moved for long. Bounded by what is looked at, not by what is found."""
    page = await store.find_runs(RunQuery(statuses=_ACTIVE), cursor, _PAGE)
    before = await store.now() - options.stale_after_s
    stale = tuple(record for record in page.runs if record.document.updated_at <= before)
    return RunPage(stale, page.cursor, page.broken)
