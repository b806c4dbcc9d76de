"""Drift: in what a document that claims to be current differs from its log. Being behind the log is lag, no drift.

A document ahead of its log is the one sign that events were lost: the repair must first record the loss in the log.
A document of an earlier form says nothing about fields that came later, so these are not compared.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.events import ErrorInfo, Parent
from buoy.core.log.pause import Pause
from buoy.core.log.wording import counted

_SHOWN_CHARS = 120
# What pauses have had since version 2 of the document.
_LATER_IN_PAUSES = ("message", "expires_at", "tried_version", "difference", "misfits")
# Since which version of the document it has these fields.
_SINCE = {
    "consumed_count": 3, "placement": 4, "lots": 4, "held_count": 4, "takeovers": 5,
    "allocations": 6, "cluster_number": 6,
}  # fmt: skip
# The fields whose names say little by themselves.
_LABELS = {
    "open": "what is open",
    "open_count": "number of open parts",
    "completed_count": "number of completed parts",
    "failed_count": "number of failed parts",
    "consumed_count": "number of consumed messages",
    "lots": "lots on offer",
    "held_count": "number of failed jobs",
    "takeovers": "number of takeovers",
    "allocations": "number of allocations",
    "cluster_number": "last change of its cluster",
    "wake_at": "next wake-up (seconds since 1970)",
    "head_seq": "last event",
    "created_at": "creation (seconds since 1970)",
    "updated_at": "last change (seconds since 1970)",
}


def difference(stored: Document, folded: Document) -> str | None:
    """What a stored document says wrongly, in one line; None if it only lags behind, or is right."""
    if stored.head_seq > folded.head_seq:
        return ahead_text(stored.head_seq, folded.head_seq)
    if stored.head_seq < folded.head_seq:
        return None
    different = differing(stored, folded)
    if not different:
        return None
    name = "status" if "status" in different else different[0]
    more = f" (and {counted(len(different) - 1, 'more difference')})" if len(different) > 1 else ""
    said, true = _apart(getattr(stored, name), getattr(folded, name))
    return f"its document says {_LABELS.get(name, name)} = {said}, its log says {true}{more}"


def differing(stored: Document, folded: Document) -> list[str]:
    """The fields that a stored document has wrong."""
    if stored.v < folded.v and stored.pause is not None and folded.pause is not None:
        unsaid = {name: getattr(stored.pause, name) for name in _LATER_IN_PAUSES}
        folded = replace(folded, pause=replace(folded.pause, **unsaid))
    names = (name for name in Document.__struct_fields__ if name != "v" and stored.v >= _SINCE.get(name, 0))
    return [name for name in names if getattr(stored, name) != getattr(folded, name)]


def ahead_text(document_head: int, log_end: int) -> str:
    """What it means that a document names an event which its log does not have."""
    first = log_end + 1
    lost = f"event {first}" if first == document_head else f"events {first} to {document_head}"
    return (
        f"its document is at event {document_head}, its log ends at {log_end}: {lost} may have been lost "
        "(an older copy of the log was put back, or its end was cut off), unless the document is wrong"
    )


def log_gone_text(document_head: int) -> str:
    """What it means that a run which Buoy drove has no events at all."""
    return f"its log is gone: it has no events, and its document is at event {document_head}"


def _apart(said: object, true: object) -> tuple[str, str]:
    """Both values as people read them; of two that read the same, the part in which they differ."""
    shown = _shown(said), _shown(true)
    if shown[0] != shown[1]:
        return shown
    if isinstance(said, tuple) and isinstance(true, tuple):
        pairs = ((one, other) for one, other in zip(said, true, strict=False) if one != other)
        return next((_apart(*pair) for pair in pairs), shown)
    if isinstance(said, Struct) and type(said) is type(true):
        name = next(name for name in said.__struct_fields__ if getattr(said, name) != getattr(true, name))
        before = f"{said.leaf}: " if isinstance(said, OpenLeaf) else ""
        one, other = _apart(getattr(said, name), getattr(true, name))
        return f"{before}{name} {one}", f"{name} {other}"
    return shown


def _shown(value: object) -> str:
    """A value of a document as people read it."""
    match value:
        case None | () | "":
            text = "nothing"
        case tuple():
            text = ", ".join(_shown(each) for each in value)
        case OpenLeaf():
            text = f"{value.leaf} ({value.kind}{', to be tried again' if value.retrying else ''})"
        case Pause():
            text = f"{value.reason}{f' ({value.detail})' if value.detail else ''}"
        case ErrorInfo():
            text = str(value)
        case Parent():
            text = str(value.run)
        case _:
            text = str(value)
    text = " ".join(text.split()) or "nothing"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
