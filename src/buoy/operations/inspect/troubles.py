"""Troubles: every run that is in trouble, one line each, and what is wrong with the store itself.

Invariants: every run that has not ended is looked at, with its log; where each request is billed, by its document
first, and with its log if that gives any sign of trouble. A run that cannot be read hides no other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec.structs import replace

from buoy.core.diagnosis.findings import Finding, first_notice
from buoy.core.diagnosis.first_look import gives_sign
from buoy.core.diagnosis.health import TROUBLES, Health, judge
from buoy.core.explain.findings import finding_text
from buoy.core.limits import RUNS_PAGE_MAX, STALE_AFTER_S
from buoy.core.log.lifecycle import Status
from buoy.engine.client.client import Client
from buoy.errors import Problem
from buoy.operations.inspect.runs import NOT_ENDED
from buoy.ports.records import RunQuery, RunRecord
from buoy.recovery.evidence import facts_of_page, store_trouble
from buoy.recovery.fleet import Fleet, read_fleet
from buoy.recovery.recover import Examined, examine


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One run in trouble, in one line; `notice`: it is healthy by all signs, and yet worth a word."""

    run_id: str
    workflow: str
    # None: it cannot be read.
    status: Status | None
    health: Health
    code: str | None = None
    text: str
    notice: bool = False


class TroubleList(msgspec.Struct, frozen=True):
    """All of them. `store`: why the store takes no data now, in one line."""

    troubles: tuple[Trouble, ...]
    notices: tuple[Trouble, ...]
    store: str | None

    @property
    def any(self) -> bool:
        """Notices are none."""
        return bool(self.troubles) or self.store is not None


async def all_troubles(client: Client) -> TroubleList:
    """Every run in trouble, and what is wrong with the store itself."""
    found = [each async for each in _troubles(client)]
    return TroubleList(
        tuple(each for each in found if not each.notice),
        tuple(each for each in found if each.notice),
        await store_trouble(client.store),
    )


async def _troubles(client: Client) -> AsyncIterator[Trouble]:
    cursor: str | None = None
    while True:
        page = await client.runs(RunQuery(statuses=NOT_ENDED), cursor, RUNS_PAGE_MAX)
        fleet = await read_fleet(client.store, client.liveness)
        for one in page.broken:
            text = f"it cannot be read: {one.reason}"
            yield Trouble(run_id=one.id, workflow="", status=None, health=Health.UNKNOWN, code="R1", text=text)
        for record in await _suspicious(client, page.runs, fleet):
            found = await _trouble(client, record, fleet)
            if found is not None:
                yield found
        cursor = page.cursor
        if cursor is None:
            return


async def _suspicious(client: Client, records: Sequence[RunRecord], fleet: Fleet) -> Sequence[RunRecord]:
    """Those of the runs whose logs are worth reading: all of them, unless each request is billed."""
    if not client.store.pace.billed:
        return records
    facts = await facts_of_page(client.store, fleet, records, stale_after_s=STALE_AFTER_S)
    return [record for record, seen in zip(records, facts, strict=True) if gives_sign(seen)]


async def _trouble(client: Client, record: RunRecord, fleet: Fleet) -> Trouble | None:
    doc = record.document

    def trouble(status: Status, health: Health, text: str, code: str | None = None) -> Trouble:
        return Trouble(run_id=doc.run_id, workflow=doc.workflow, status=status, health=health, code=code, text=text)

    try:
        seen = await examine(client, doc.run_id, fleet=fleet, stale_after_s=STALE_AFTER_S)
    except Problem as error:
        return trouble(doc.status, Health.UNKNOWN, f"it could not be read: {error}")
    verdict, shown = judge(seen.facts), seen.facts.document
    finding = _first(seen)
    if finding is not None:
        return trouble(shown.status, verdict.health, finding_text(finding), finding.code)
    if verdict.health in TROUBLES:
        return trouble(shown.status, verdict.health, "; ".join(verdict.reasons))
    if shown.pause is not None and shown.pause.reason != "user":
        return trouble(shown.status, verdict.health, f"paused: {shown.pause.detail or shown.pause.reason}")
    notice = first_notice(seen.findings)
    if notice is None:
        return None
    return replace(trouble(shown.status, verdict.health, finding_text(notice), notice.code), notice=True)


def _first(seen: Examined) -> Finding | None:
    return next((each for each in seen.findings if each.trouble), None)
