"""Recoveries: the audit of what Buoy and people did to bring runs back, read off the logs.

Invariants: each entry is an event: `workflow_recovered`, or the claim of a takeover or recovery that needed no branch.
A branch that hides events hides no recovery from the audit. The documents of a page say which logs may have one; no
other log is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.ids import RunId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.takeovers import BROUGHT_BACK
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import BadInput, CorruptLog
from buoy.ports.records import Evidence, RunQuery

# Runs whose documents one page of the audit looks at; those without a recovery cost no more.
_PAGE = 200


class RecoveryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery: when, why, by whom, and what it hid. `event`: its type.

    `finding` None: the log has the reason, and no code for it. A takeover hides nothing: its branch stays the same, and
    `cutoff_event` is the last event before it.
    """

    run_id: str
    workflow: str
    seq: int
    at: float
    event: str
    finding: str | None
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
    return RecoveryAudit(tuple(await _entries(client, doc)), None)


async def recovery_audit(client: Client, cursor: str | None = None, limit: int = _PAGE) -> RecoveryAudit:
    """Recoveries of a page of runs. A page may be empty although `cursor` says that there are more."""
    if not 1 <= limit <= RUNS_PAGE_MAX:
        raise BadInput(f"limit must be from 1 to {RUNS_PAGE_MAX}: {limit}")
    page = await client.store.find_runs(RunQuery(), cursor, limit)
    found: list[RecoveryEntry] = []
    unread = [one.id for one in page.broken]
    for record in page.runs:
        if not record.document.may_have_recovered:
            continue
        try:
            found += await _entries(client, record.document)
        except CorruptLog:
            unread.append(record.document.run_id)
    return RecoveryAudit(tuple(found), page.cursor, tuple(unread))


async def _entries(client: Client, doc: Document) -> list[RecoveryEntry]:
    log = await read_log(client.store, RunId(doc.run_id))
    found: list[RecoveryEntry] = []
    for place, event in enumerate(log):
        body = event.body
        if isinstance(body, e.WorkflowRecovered):
            found.append(_of_branch(doc, event, body))
        elif isinstance(body, e.Claimed) and body.cause in BROUGHT_BACK:
            rest = list(_commit_of(log, place))
            if not any(isinstance(each, e.WorkflowRecovered) for each in rest):
                found.append(_of_claim(doc, event, body, rest))
    return found


def _commit_of(log: Sequence[e.Event], place: int) -> Iterator[e.Body]:
    """What was appended together with the claim at that place, after it."""
    for number in range(place + 1, len(log)):
        if log[number].nonce is not None or isinstance(log[number].body, e.Claimed):
            return
        yield log[number].body


def _of_branch(doc: Document, event: e.Event, body: e.WorkflowRecovered) -> RecoveryEntry:
    return RecoveryEntry(
        run_id=doc.run_id,
        workflow=doc.workflow,
        seq=event.seq,
        at=event.at,
        event=event.type,
        finding=body.finding,
        reason=body.reason,
        policy=body.policy,
        actor=body.actor,
        previous_branch=body.previous_branch,
        new_branch=body.new_branch,
        cutoff_event=body.cutoff_event,
        evidence=body.evidence,
    )


def _of_claim(doc: Document, event: e.Event, body: e.Claimed, rest: Sequence[e.Body]) -> RecoveryEntry:
    orphan, finding = body.evidence.get("orphan"), body.evidence.get("finding")
    code = str(finding) if finding else None if orphan is not None else "H1"
    return RecoveryEntry(
        run_id=doc.run_id,
        workflow=doc.workflow,
        seq=event.seq,
        at=event.at,
        event=event.type,
        finding=code,
        reason=_reason(code, body.evidence, rest),
        policy=doc.policy,
        actor=body.runner,
        previous_branch=event.branch,
        new_branch=event.branch,
        cutoff_event=event.seq - 1,
        evidence=body.evidence,
    )


def _reason(code: str | None, evidence: Evidence, rest: Sequence[e.Body]) -> str:
    """As the recovery itself recorded it, else from the evidence of the claim."""
    for body in rest:
        if isinstance(body, e.Paused) and body.reason in ("hold", "poison") and body.detail is not None:
            return body.detail
        if isinstance(body, e.VersionBound) and body.detail is not None:
            return body.detail
        if isinstance(body, e.WorkflowFailed):
            return body.error.message
    if code is None:
        return str(evidence["orphan"])
    if evidence.get("runner"):
        proof = evidence.get("proof") or "proven dead"
        return f"{code}: runner {evidence['runner']}, which drove it, is dead: {proof}"
    entry = CATALOGUE.get(code)
    return code if entry is None else f"{code}: {entry.title}"
