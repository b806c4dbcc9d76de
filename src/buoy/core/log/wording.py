"""Wording: counts and errors in words, for every part of the core."""

from __future__ import annotations

from buoy.core.log.events import ErrorInfo


def error_text(error: ErrorInfo) -> str:
    """An error in one line."""
    first, *more = str(error).splitlines()
    return f"{first}{' ...' if more else ''}"


def counted(number: int, noun: str) -> str:
    """'1 run', '2 runs'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
