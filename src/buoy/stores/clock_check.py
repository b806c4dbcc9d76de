"""Clock check: the times in a store against the clock of this machine, for stores that have none of their own."""

from __future__ import annotations

from buoy.ports.maintenance import StoreCheck

# Times of a store may be ahead of this machine's clock by that much: clocks are never quite the same.
AHEAD_MAX_S = 60.0


def clock_check(newest: float | None, now: float) -> StoreCheck:
    """Nothing in a store can be younger than now, unless a clock is wrong or was set back."""
    ahead_s = 0.0 if newest is None else newest - now
    if ahead_s <= AHEAD_MAX_S:
        return StoreCheck("clock", True, "nothing in the store is dated later than now")
    text = f"the store has times that are {ahead_s:,.0f} s ahead of this machine's clock"
    return StoreCheck("clock", False, f"{text}; set the clock right: timers fire by it", by_person=True)
