"""Moves: what a cursor of a change feed says."""

from __future__ import annotations

from buoy.errors import BadInput

# No store counts further.
_DIGITS_MAX = 18


def place_of(cursor: str) -> int:
    """The place in the feed that a cursor names."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _DIGITS_MAX):
        raise BadInput(f"cursor {cursor[:40]!r} is not one that this store gave; begin without a cursor")
    return int(cursor)
