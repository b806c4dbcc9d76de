"""Durations: `"30s"`, `"3d"`, `90`, `timedelta` to seconds, and seconds to words."""

from __future__ import annotations

import re
from datetime import timedelta

from buoy.errors import BadInput

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
# Some 300 years.
_ENDLESS_S = 1e10
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.ASCII)
# A whole text, as JSON Schemas write it too.
DURATION = r"\s*(?:\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|w)\s*)+"
_WHOLE = re.compile(DURATION + r"\Z", re.ASCII)

Duration = float | int | str | timedelta


def seconds(value: Duration, what: str = "duration") -> float:
    """The duration in seconds, or a refusal with examples."""
    if isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, str):
        text = value.strip()
        if not _WHOLE.match(text):
            raise BadInput(f"{what} {value!r} is not a duration; write '30s', '5m', '2h', '3d' or '1h30m'")
        found = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{what} {value!r} is not a duration; write a number of seconds or '30s'")
    else:
        found = float(value) if 0 <= value < _ENDLESS_S else -1.0
    if not 0 <= found < _ENDLESS_S:
        raise BadInput(f"{what} {value!r} must not be negative or endless; the most is 300 years")
    return found


def in_words(span_s: float) -> str:
    """A span for people: '3 s', '4 min', '2 h 5 min', '3 d 4 h'."""
    whole = round(abs(span_s))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h" + (f" {minutes} min" if minutes else "")
    hours = whole % 86400 // 3600
    return f"{whole // 86400} d" + (f" {hours} h" if hours else "")
