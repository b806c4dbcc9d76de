"""Due times in SQLite: what is due at once, and what is due by the clock.

The clock of this machine may be set back, and with it all that was "due now" would wait again. So work that is due at
once is marked as such: its time is stored shifted below zero. It keeps its order, and is due whatever the clock says.
Only a time that was still to come when it was written is compared with a clock later.
"""

from __future__ import annotations

# A power of two, so that shifting costs one bit only; as a time it is a year beyond 2100.
_SHIFT_S = 2.0**32


def at_once(since: float) -> float:
    """What is stored for work that is due at once, and is in the queue since then."""
    return min(max(since, 0.0), _SHIFT_S - 1.0) - _SHIFT_S


def now_due(stored: float) -> float:
    """What is stored for work whose time has come, whatever was stored before."""
    return stored if stored < 0.0 else at_once(stored)


def since(stored: float) -> float:
    """The time that was stored, shifted or not."""
    return stored if stored >= 0.0 else stored + _SHIFT_S


def due_since(stored: float, now: float) -> float:
    """The due time as it is shown. What is due at once is never shown as due later, whatever the clock says."""
    return stored if stored >= 0.0 else min(since(stored), now)
