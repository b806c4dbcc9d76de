"""Garbage: how often Python looks for cycles of objects, in a process that belongs to Buoy.

Absent on purpose: `buoy.open`. A program that holds a runner beside its own work chooses for itself.
"""

from __future__ import annotations

import gc

# New objects between two looks; Python's own number is 700 to 2,000. Thousands of live runs are objects that stay, and
# to go through them again and again takes 11 % of a worker's processor time (1,500 runs of 5 steps on SQLite).
_NEW_OBJECTS = 10_000


def collect_seldom() -> None:
    """Has Python look less often, unless the collector was turned off or looks even less often."""
    first, *others = gc.get_threshold()
    if gc.isenabled() and 0 < first < _NEW_OBJECTS:
        gc.set_threshold(_NEW_OBJECTS, *others)
