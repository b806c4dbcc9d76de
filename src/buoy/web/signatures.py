"""Signatures: puts the name of the caller's token before the name that a client of the HTTP store gives itself.

Invariants: a request to a run bears the name of its token, as a message and as events that a client appends at once.
What a runner records of its own work stays as it is. The runner is registered under its id, and what it took from a
message names the sender already. The document of a signed write says what its log says.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.log import events as e
from buoy.ports.records import Message, Write

# What people and programs ask of a run. The other kinds are what runs tell each other.
_SIGNED = frozenset({"signal", "answer", "pause", "resume", "cancel", "jump", "cluster"})
# Why a process claims a run that it does not drive: to append a request, or a recovery.
_ASKING = ("requested", "recovered")


def signed(message: Message, caller: str) -> Message:
    """A request with the name of the token that sent it."""
    from_client = message.kind == "jobs" and not message.dedupe.startswith(f"jobs:{message.by}:")
    if message.kind not in _SIGNED and not from_client:
        return message
    return msgspec.structs.replace(message, by=_named(caller, message.by))


def signed_write(write: Write, caller: str) -> Write:
    """A new run, or a request that is appended at once, with the name of the token. Other writes stay as they are."""
    bodies = [event.body for event in write.events]
    starts = write.after_seq == 0 and bool(bodies) and _is_start(bodies[0])
    claim = next((body for body in bodies[:2] if isinstance(body, e.Claimed) and _asks(body)), None)
    if not starts and claim is None:
        return write
    events = tuple(
        msgspec.structs.replace(event, body=_signed_body(event.body, caller))
        if claim is not None or _is_start(event.body)
        else event
        for event in write.events
    )
    return msgspec.structs.replace(write, events=events, document=_signed_document(write, claim, caller))


def _is_start(body: e.Body) -> bool:
    """A child was started by its parent."""
    return isinstance(body, e.WorkflowCreated) and body.parent is None


def _asks(claim: e.Claimed) -> bool:
    # A recovery of a run whose runner died counts as its takeover, and names its finding.
    return claim.cause in _ASKING or "finding" in claim.evidence


def _signed_body(body: e.Body, caller: str) -> Any:
    if isinstance(body, e.WorkflowCreated):
        return msgspec.structs.replace(body, by=_named(caller, body.by)) if body.parent is None else body
    if isinstance(body, e.Claimed):
        return msgspec.structs.replace(body, runner=_named(caller, body.runner))
    if isinstance(body, e.WorkflowRecovered):
        return msgspec.structs.replace(body, actor=_named(caller, body.actor))
    by = getattr(body, "by", None)
    if by is None or getattr(body, "message", None) is not None:
        return body
    return msgspec.structs.replace(body, by=_named(caller, by))


def _signed_document(write: Write, claim: e.Claimed | None, caller: str) -> Any:
    """The caches of what the events say: the last owner, and who paused the run."""
    document = write.document
    if claim is None:
        return document
    if claim.cause not in _ASKING and document.owner == claim.runner:
        document = msgspec.structs.replace(document, owner=_named(caller, claim.runner))
    paused = any(isinstance(event.body, e.Paused) and event.body.message is None for event in write.events)
    if paused and document.pause is not None and document.pause.by is not None:
        pause = msgspec.structs.replace(document.pause, by=_named(caller, document.pause.by))
        document = msgspec.structs.replace(document, pause=pause)
    return document


def _named(caller: str, claimed: str | None) -> str:
    return caller if not claimed or claimed == caller else f"{caller}/{claimed}"
