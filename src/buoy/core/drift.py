"""Drift: in what a document that claims to be current differs from its log. Being behind the log is lag, no drift.

A document ahead of its log is the one sign that events were lost: whoever mends it must write that down first.
"""

from __future__ import annotations

from buoy.core.document import Document

_SHOWN_CHARS = 120


def difference(stored: Document, folded: Document) -> str | None:
    """What a stored document says wrongly, in one line; None if it only lags behind, or is right."""
    if stored.head_seq > folded.head_seq:
        return ahead_text(stored.head_seq, folded.head_seq)
    if stored.head_seq < folded.head_seq:
        return None
    different = [name for name in Document.__struct_fields__ if getattr(stored, name) != getattr(folded, name)]
    if not different:
        return None
    name = "status" if "status" in different else different[0]
    return f"its document says {name} = {_shown(stored, name)}, its log says {_shown(folded, name)}"


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


def _shown(document: Document, name: str) -> str:
    text = " ".join(str(getattr(document, name)).split()) or "nothing"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
