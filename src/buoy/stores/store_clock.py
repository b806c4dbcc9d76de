"""The clock of a store: one of its own, as a database server has, or that of the process that uses the store.

Invariants: a store with a clock of its own stamps every record by it. It moves a due time there by the distance that
the writer saw. A store without one keeps due times as their writers set them. "At once" is the writer's decision.
"""

from __future__ import annotations

from buoy.ports.host import Clock
from buoy.ports.records import Released


class StoreClock:
    """What a store asks for the time. Spans of this process are measured by the process's own clock."""

    def __init__(self, process: Clock, own: Clock | None = None) -> None:
        self._process = process
        self._given = own
        self._wall = process if own is None else own
        self.own = own is not None

    @property
    def parts(self) -> tuple[Clock, Clock | None]:
        """The clock of the process, and that of the store: what another connection is opened with."""
        return self._process, self._given

    def now(self) -> float:
        return self._wall.now()

    def monotonic(self) -> float:
        return self._process.monotonic()

    def stamp(self, dated: float) -> float:
        """The time of a record that its writer dates so."""
        return self._wall.now() if self.own else dated

    def place(self, change: Released) -> tuple[float | None, bool]:
        """The due time as this store keeps it, and whether the task is due at once, for every reader."""
        if change.due_at is None:
            return None, False
        at_once = change.due_at <= change.now
        if self.own:
            return self._wall.now() + (change.due_at - change.now), at_once
        return change.due_at, at_once and not change.by_clock
