"""Reconcile: sends wake-ups again that were lost.

A wake-up is the end of a child or of a step elsewhere, a due time, a retry to start, or an unread message.
Invariants: what is sent again has the dedupe id that it had the first time, so a run that got it before gets nothing
more. A child that was never born is asked for again by its parent, which is made due. Nothing is executed here, and a
run that a living runner holds is only ever written to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.diagnosis.findings import first_trouble
from buoy.core.limits import WAKE_SLACK_S
from buoy.core.log.lifecycle import ACTIVE
from buoy.core.times import StoreTime, run_time
from buoy.engine.client.client import Client
from buoy.ports.records import RunQuery, RunRecord
from buoy.recovery.fleet import Fleet, read_fleet
from buoy.recovery.recover import Recovery, examine, recover_run
from buoy.recovery.sweep.scan import sweep_pages
from buoy.recovery.sweep.scope import Scope

_ACTIVE = tuple(sorted(ACTIVE))
_TROUBLES_KEPT = 100


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """`replayed`: runs that got a wake-up again; `skipped`: runs that wait, and were left as they are."""

    replayed: int = 0
    skipped: int = 0
    # One line for each run that could not be looked at; the first of them.
    troubles: tuple[str, ...] = ()
    # Where the next one continues; None: all were looked at.
    cursor: str | None = None

    def __add__(self, more: Reconciled) -> Reconciled:
        return Reconciled(
            replayed=self.replayed + more.replayed,
            skipped=self.skipped + more.skipped,
            troubles=(*self.troubles, *more.troubles)[:_TROUBLES_KEPT],
        )


async def reconcile(
    client: Client,
    scope: Scope | None = None,
    *,
    stale_after_s: float = 0.0,
    dry_run: bool = False,
    cursor: str | None = None,
    bounded: bool = False,
) -> Reconciled:
    """Looks at active runs that wait for something outside, and wakes those whose wake-up was lost.

    `scope` None: the stack and env of the client. `bounded`: as many active runs as one sweep looks at, from `cursor`
    on; the answer says where to continue.
    """
    chosen = Scope.of(client, scope)
    found, pages = Reconciled(), 0
    size, pages_max = sweep_pages(client.store, bounded=bounded)
    while pages_max is None or pages < pages_max:
        # The sweep that comes before reports the runs of the page that cannot be read.
        query = RunQuery(statuses=_ACTIVE, stack=chosen.stack, env=chosen.env)
        page = await client.store.find_runs(query, cursor, size)
        now = await client.store.now()
        old = [record for record in page.runs if record.updated_at <= now - stale_after_s]
        found = found + await reconcile_runs(client, chosen, old, now, dry_run=dry_run)
        pages, cursor = pages + 1, page.cursor
        if cursor is None:
            break
    return msgspec.structs.replace(found, cursor=cursor)


async def reconcile_runs(
    client: Client, scope: Scope, records: Sequence[RunRecord], now: StoreTime, *, dry_run: bool
) -> Reconciled:
    """The same for runs that were just read."""
    replayed = skipped = 0
    troubles: list[str] = []
    waiting = [record for record in records if scope.covers(record.document) and _waits(record, now)]
    fleet = await read_fleet(client.store, client.liveness) if waiting else None
    for record in waiting:
        try:
            woken = await _wake(client, record, fleet, dry_run=dry_run)
        except Exception as error:  # noqa: BLE001 - reported; one run's trouble must not stop the others
            troubles.append(f"{record.document.run_id}: {Recovery.unread(record.document.run_id, error).error}")
            woken = False
        replayed, skipped = replayed + woken, skipped + (not woken)
    return Reconciled(replayed=replayed, skipped=skipped, troubles=tuple(troubles))


def _waits(record: RunRecord, now: StoreTime) -> bool:
    """Whether, by its document, something should have woken it: a child, a time, or perhaps a message."""
    doc = record.document
    if doc.open_count > len(doc.open) or any(leaf.kind == "child" for leaf in doc.open):
        return True
    if record.holder is not None or record.due_at is not None:
        return False
    run_now = run_time(now, taken_at=record.updated_at, dated_at=doc.updated_at)
    return record.inbox_head > 0 or (doc.wake_at is not None and doc.wake_at < run_now - WAKE_SLACK_S)


async def _wake(client: Client, record: RunRecord, fleet: Fleet | None, *, dry_run: bool) -> bool:
    """Whether its wake-up was lost, and is there again."""
    run_id = record.document.run_id
    finding = first_trouble((await examine(client, run_id, fleet=fleet)).findings)
    if finding is None or finding.code != "Q4":
        return False
    done = await recover_run(client, run_id, dry_run=dry_run, fleet=fleet)
    return done.needed and done.action != "lost"
