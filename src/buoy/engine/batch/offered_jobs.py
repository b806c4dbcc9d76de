"""Offered jobs: which lot each job is in now, and which jobs each lot still has.

Invariant: a job is in one lot at most. One that is offered again leaves its former lot.
"""

from __future__ import annotations

from collections.abc import Iterable


class OfferedJobs:
    """Jobs by node, with the number of their lot."""

    def __init__(self) -> None:
        self._lots: dict[int, int] = {}
        self._members: dict[int, dict[int, None]] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._lots

    def __getitem__(self, node: int) -> int:
        return self._lots[node]

    def __len__(self) -> int:
        return len(self._lots)

    def put(self, node: int, lot: int) -> None:
        self.remove(node)
        self._lots[node] = lot
        self._members.setdefault(lot, {})[node] = None

    def remove(self, node: int) -> bool:
        """Whether it was in a lot."""
        lot = self._lots.pop(node, None)
        if lot is None:
            return False
        members = self._members[lot]
        del members[node]
        if not members:
            del self._members[lot]
        return True

    def members(self, lot: int) -> list[int]:
        return list(self._members.get(lot, ()))

    def by_lot(self, nodes: Iterable[int]) -> dict[int, list[int]]:
        """Those of these jobs that are offered, by lot."""
        found: dict[int, list[int]] = {}
        for node in nodes:
            if node in self:
                found.setdefault(self[node], []).append(node)
        return found
