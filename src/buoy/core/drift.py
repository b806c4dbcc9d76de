"""Drift: in what a document that claims to be current differs from its log. Being behind the log is lag, no drift."""

from __future__ import annotations

from buoy.core.document import Document

_SHOWN_CHARS = 120


def difference(stored: Document, folded: Document) -> str | None:
    """What a stored document says wrongly, in one line; None if it only lags behind, or is right."""
    if stored.head_seq > folded.head_seq:
        return f"its document is at event {stored.head_seq}, its log ends at {folded.head_seq}"
    if stored.head_seq < folded.head_seq:
        return None
    different = [name for name in Document.__struct_fields__ if getattr(stored, name) != getattr(folded, name)]
    if not different:
        return None
    name = "status" if "status" in different else different[0]
    return f"its document says {name} = {_shown(stored, name)}, its log says {_shown(folded, name)}"


def _shown(document: Document, name: str) -> str:
    text = str(getattr(document, name))
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
