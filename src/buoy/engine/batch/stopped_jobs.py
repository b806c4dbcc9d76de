"""Stopped jobs: those that a person stopped in a lot, and those of them that are to run again.

Invariant: a lot reports the end of a stopped job, and ends itself, when no process of it is left. A job that is to run
again waits for either, so it never runs twice at the same time.
"""

from __future__ import annotations

from collections.abc import Container

from buoy.core.batch.lots import lot_leaf
from buoy.core.ids import LeafId


class StoppedJobs:
    """Jobs by node, with the number of the lot in which they were stopped. `lots`: those that are not over."""

    def __init__(self, lots: Container[LeafId]) -> None:
        self._lots = lots
        self._stopped: dict[int, int] = {}
        self._again: set[int] = set()

    @property
    def open_lots(self) -> set[int]:
        """The lots that are not over, and in which jobs were stopped."""
        return {lot for lot in self._stopped.values() if lot_leaf(lot) in self._lots}

    def stop(self, node: int, lot: int | None) -> None:
        """A job is stopped. `lot`: the one that it is in."""
        self._again.discard(node)
        if lot is not None:
            self._stopped[node] = lot

    def wait(self, node: int) -> bool:
        """Whether a job that is to run again has to wait for the end of a lot."""
        lot = self._stopped.get(node)
        if lot is None or lot_leaf(lot) not in self._lots:
            return False
        self._again.add(node)
        return True

    def lot_of(self, node: int) -> int | None:
        """The lot in which that job was stopped and may still be ending."""
        return self._stopped.get(node)

    def lot_over(self, lot: int) -> list[int]:
        """The jobs that waited for the end of that lot."""
        left = [node for node, number in self._stopped.items() if number == lot]
        return [node for node in left if self.left(node)]

    def left(self, node: int) -> bool:
        """Nothing of that job runs any more. Whether it waited for that."""
        self._stopped.pop(node, None)
        waited = node in self._again
        self._again.discard(node)
        return waited
