"""Pace: how a process works with a store: how many commits at once, and how often it looks without a hint."""

from __future__ import annotations

import msgspec

from buoy.core.limits import COMMIT_WRITES_MAX


class Lanes(msgspec.Struct, frozen=True):
    """How the journal of a process commits to a store: how many groups at once, and how many writes in each.

    One group at a time where commits share a sync (SQLite); a few where they share a round trip; groups of one write
    where each run is a request of its own, so that a slow one holds up no other.
    """

    groups: int = 1
    writes: int = COMMIT_WRITES_MAX


class Pace(msgspec.Struct, frozen=True):
    """How often the loops of a process look at a store without a hint. Where each request is billed: seldom."""

    # Due tasks and unread messages.
    look_s: float = 1.0
    # The other runners.
    fleet_s: float = 1.0
    orphans_s: float = 30.0
    # Schedules, where other machines may change them.
    schedules_s: float = 10.0
    # Active runs that one sweep of a worker reads without a sign of trouble; None: as many as its options say.
    sweep_looks: int | None = None

    @property
    def billed(self) -> bool:
        """Whether each request costs money, so that callers trust an index or a document and read no more."""
        return self.sweep_looks is not None
