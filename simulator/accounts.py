"""Accounts: what a run's document tells people, counted once more from the log by another way of reading.

Pure, as `invariants`. The fold of the engine may be wrong everywhere in the same way. Then the document and the fold
agree, and only a reading that shares nothing with the fold notices it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from buoy.core.log import events as e
from buoy.core.log.document import Document
from simulator.reading import Part, old_name, parts_of, pause_of, shown, status_of

# Claims of clients and remedies, which append something and drive nothing.
_IN_PASSING = ("requested", "recovered")
_KINDS: dict[type[e.Payload], str] = {
    e.StepStarted: "step",
    e.ModuleStarted: "module",
    e.InteractionRequested: "ask",
    e.SignalWaited: "signal",
    e.TimerStarted: "timer",
    e.ChildStarted: "child",
    e.CompensationStarted: "compensation",
}


def misread(log: list[e.Event], doc: Document) -> Iterator[str]:
    """Where a document says something else than its log."""
    seen = shown(log)
    parts = parts_of(seen)
    over = any(isinstance(event.body, e.ENDINGS) for event in seen)
    left = [] if over else [part for part in parts.values() if part.ended is None]
    wanted = {**_whole(log, seen, parts), **_counts(log, seen, parts, left)}
    for name, value in wanted.items():
        if getattr(doc, name) != value:
            yield f"the document says {name} {getattr(doc, name)}, the log amounts to {value}"
    yield from _misread_pause(log, doc)
    if doc.open_count == len(doc.open) == len(left):
        yield from _misread_open(left, doc)


def _counts(
    log: list[e.Event], seen: list[e.Event], parts: dict[str, Part], left: list[Part]
) -> dict[str, Any]:  # fmt: skip
    ended = [part for part in parts.values() if part.ended is not None]
    consumed = {getattr(event.body, "message", None) for event in seen} - {None}
    return {
        "open_count": len(left),
        "completed_count": sum(part.outcome == "completed" for part in ended),
        "failed_count": sum(part.outcome == "failed" for part in ended),
        "claims": sum(isinstance(event.body, e.Claimed) for event in log),
        "recoveries": sum(isinstance(event.body, e.WorkflowRecovered) for event in log),
        "consumed_count": len(consumed),
        "wake_at": min((part.due_at for part in left if part.due_at is not None), default=None),
    }


def _whole(log: list[e.Event], seen: list[e.Event], parts: dict[str, Part]) -> dict[str, Any]:
    """What is said of the run as a whole."""
    created = log[0].body
    branches = [each.body.branch for each in log if isinstance(each.body, e.BranchCreated)]
    wanted: dict[str, Any] = {
        "status": status_of(log, seen, parts),
        "head_seq": log[-1].seq,
        "created_at": log[0].at,
        "updated_at": log[-1].at,
        "branch": branches[-1] if branches else 0,
        "owner": _owner(log),
        "cancel_requested": _cancel(log),
        "error": _error(seen),
    }
    if isinstance(created, e.WorkflowCreated):
        bound = [each.body.version for each in log if isinstance(each.body, e.VersionBound)]
        wanted["version"] = bound[-1] if bound else created.version
        for name in ("workflow", "queue", "policy", "stack", "env", "parent", "placement"):
            wanted[name] = getattr(created, name)
    return wanted


def _owner(log: list[e.Event]) -> str | None:
    claims = [each.body for each in log if isinstance(each.body, e.Claimed)]
    drives = [claim.runner for claim in claims if claim.cause not in _IN_PASSING]
    return drives[-1] if drives else None


def _cancel(log: list[e.Event]) -> bool:
    """Whether a request to cancel stands. A run that was brought back after its end begins without it."""
    asked, over = False, False
    for event in log:
        if isinstance(event.body, e.CancelRequested):
            asked = True
        elif isinstance(event.body, e.ENDINGS):
            over = True
        elif isinstance(event.body, e.BranchCreated) and over:
            asked, over = False, False
    return asked


def _error(seen: list[e.Event]) -> e.ErrorInfo | None:
    ends = [each.body for each in seen if isinstance(each.body, e.ENDINGS)]
    end = ends[-1] if ends else None
    if isinstance(end, e.WorkflowCancelled) and end.reason:
        return e.ErrorInfo(type="Cancelled", message=end.reason, retryable=False, kind="cancelled")
    return end.error if isinstance(end, e.WorkflowFailed) else None


def _misread_pause(log: list[e.Event], doc: Document) -> Iterator[str]:
    event = pause_of(log)
    paused = None if event is None else event.body
    if paused is None or doc.pause is None or event is None:
        if (paused is None) != (doc.pause is None):
            yield f"the document says pause {doc.pause}, the log amounts to {paused}"
        return
    for name in ("reason", "detail", "message", "by", "expires_at", "tried_version"):
        if getattr(doc.pause, name) != getattr(paused, name):
            yield f"the document says that {name} of the pause is {getattr(doc.pause, name)}, event {event.seq} differs"
    if doc.pause.at != event.at:
        yield f"the document says that the run is paused since {doc.pause.at}, event {event.seq} is of {event.at}"


def _misread_open(left: list[Part], doc: Document) -> Iterator[str]:
    """Each open part: what it is, its attempt, when it is due, and its question."""
    told = {old_name(leaf.leaf): leaf for leaf in doc.open}
    for part in left:
        body, leaf = part.begun.body, told.get(part.leaf)
        if leaf is None:
            yield f"the document does not tell that {part.leaf} is open"
            continue
        kind = "group" if getattr(body, "group", False) else _KINDS[type(body)]
        backs_off = part.due_at is not None and kind in ("step", "module", "compensation")
        wanted = (kind, part.attempt, part.due_at, backs_off, getattr(body, "question_id", None))
        found = (leaf.kind, leaf.attempt, leaf.due_at, leaf.retrying, leaf.question_id)
        if found != wanted:
            yield f"the document says of {part.leaf} {found}, the log amounts to {wanted}"
