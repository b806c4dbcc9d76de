"""Scan: which runs are in trouble, and what a recovery would do about it. Only reports: the caller may recover
them, with a queue of its own if it has one.

Invariants: a scan changes nothing. It never reads finished runs: dead runners, orphans and active runs are all
found by indexes of their own. A run that cannot be read is reported as unknown, and hides no other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar
from zlib import crc32

import msgspec

from buoy.core.durations import in_words
from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import RUNS_PAGE_MAX, STALE_AFTER_S, SUSPECT_AFTER_S, SWEEP_ORPHANS_MAX, SWEEP_PAGES_MAX
from buoy.core.log.lifecycle import ACTIVE
from buoy.core.remedy.policy import Lookup
from buoy.engine.client.client import Client
from buoy.ports.records import RunPage, RunQuery, RunRecord
from buoy.ports.store import Store
from buoy.recovery.fleet import Fleet, read_fleet
from buoy.recovery.recover import Recovery, recover_run
from buoy.recovery.sweep.found import Found, Report, hand_over
from buoy.recovery.sweep.recent_fleet import RecentFleet
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.task_check import TaskChecker, checked

T = TypeVar("T")
_ACTIVE = tuple(sorted(ACTIVE))
_PAGE = 200


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at. `scope` None: the stack and env of the client. `policy`: asked first which policy a run has."""

    scope: Scope | None = None
    stale_after_s: float = STALE_AFTER_S
    adopt: bool = False
    policy: Lookup | None = None


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What one scan saw."""

    scanned: int
    healthy: int
    unknown: int
    found: tuple[Found, ...]
    # One line for each run about which the caller's function failed.
    troubles: tuple[str, ...] = ()
    # Healthy runs with a notice, such as one that has made no progress for long. Their action is "none".
    notices: tuple[Found, ...] = ()


async def scan(
    client: Client,
    options: ScanOptions | None = None,
    *,
    report: Report | None = None,
    task_checker: TaskChecker | None = None,
) -> Scan:
    """Looks at everything that may be in trouble. `report` gets each run that is, as soon as it is found;
    `task_checker` is asked whether a run's task is alive in a queue of the caller's own."""
    chosen = options or ScanOptions()
    scanned = healthy = unknown = 0
    found: list[Found] = []
    troubles: list[str] = []
    notices: list[Found] = []
    recent = RecentFleet(client)
    async for suspect in suspects(client, chosen):
        scanned += 1
        seen = suspect if isinstance(suspect, Found) else await _look(client, suspect, chosen, recent)
        trouble = None if seen.action == "none" else seen
        if task_checker is not None and not isinstance(suspect, Found):
            trouble = await checked(suspect, trouble, task_checker, await client.store.now())
        healthy += trouble is None
        unknown += trouble is not None and trouble.action == "unknown"
        if trouble is not None:
            found.append(trouble)
            failed = None if report is None else await hand_over(report, trouble)
            troubles += [] if failed is None else [failed]
        elif seen.action == "none" and seen.note is not None:
            notices.append(seen)
    return Scan(
        scanned=scanned,
        healthy=healthy,
        unknown=unknown,
        found=tuple(found),
        troubles=tuple(troubles),
        notices=tuple(notices),
    )


async def _look(client: Client, record: RunRecord, options: ScanOptions, recent: RecentFleet) -> Found:
    doc = record.document
    try:
        seen = await recover_run(
            client,
            doc.run_id,
            dry_run=True,
            policy=options.policy,
            adopt=options.adopt,
            stale_after_s=options.stale_after_s,
            fleet=await recent.get(),
        )
    except Exception as error:  # noqa: BLE001 - reported; one run's trouble must not stop a scan
        seen = Recovery.unread(doc.run_id, error)
    return Found.of(record, seen)


async def suspects(client: Client, options: ScanOptions) -> AsyncIterator[RunRecord | Found]:
    """Runs that deserve a look, each once: what the dead hold, orphans, and what has not moved for long. An orphan that
    gives no answer is reported at once."""
    store, seen, scope = client.store, set[RunId](), Scope.of(client, options.scope)
    fleet = await read_fleet(store, client.liveness, gone=0)
    for runner in fleet.registered:
        if fleet.sights[runner.info.id].proof is None:
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
            yield Found.unread(Recovery.unread(orphan.run_id, error))
            continue
        if found is not None and scope.covers(found.document) and orphan.run_id not in seen:
            seen.add(orphan.run_id)
            yield found
    cursor: str | None = None
    while True:
        page = await stale_page(store, scope, options.stale_after_s, cursor)
        for one in page.broken:
            if one.id not in seen:
                seen.add(RunId(one.id))
                yield Found.unread(Recovery.of_broken(one))
        for record in page.runs:
            if scope.covers(record.document) and record.document.run_id not in seen:
                yield record
        cursor = page.cursor
        if cursor is None:
            return


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


async def held_in_silence(client: Client, fleet: Fleet) -> AsyncIterator[tuple[RunRecord, str]]:
    """Runs of live but silent runners of this host, and since when. Runners elsewhere need two looks."""
    for runner in fleet.registered:
        facts, seen = fleet.get(runner.info.id), fleet.sights[runner.info.id].seen
        if not seen or facts.gone or (facts.beat_age_s or 0.0) <= SUSPECT_AFTER_S:
            continue
        async for record in held_by(client.store, runner.info.id):
            if not record.document.ended:
                silence = in_words(facts.beat_age_s or 0.0)
                yield record, f"runner {facts.id} holds it and has been silent for {silence}"


def mixed(items: Sequence[T], by: str, run_of: Callable[[T], RunId]) -> Sequence[T]:
    """The same runs in an order of this sweeper's own: sweepers in the same order collide at every run."""
    return sorted(items, key=lambda item: crc32(f"{by} {run_of(item)}".encode())) if by else items


def sweep_pages(store: Store, *, bounded: bool) -> tuple[int, int | None]:
    """The size of a page of active runs, and how many of them one sweep looks at; None: all."""
    if not bounded:
        return _PAGE, None
    looks = store.pace.sweep_looks
    return (_PAGE, SWEEP_PAGES_MAX) if looks is None else (looks, 1)


async def stale_page(
    store: Store, scope: Scope, stale_after_s: float, cursor: str | None, limit: int = _PAGE
) -> RunPage:
    """The next active runs, those that have not moved for long. Bounded by what is looked at, not by what is found."""
    page = await store.find_runs(RunQuery(statuses=_ACTIVE, stack=scope.stack, env=scope.env), cursor, limit)
    before = await store.now() - stale_after_s
    stale = tuple(record for record in page.runs if record.updated_at <= before)
    return RunPage(stale, page.cursor, page.broken)
