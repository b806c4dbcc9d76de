"""Offered jobs: which lot each job is in now, and which jobs each lot still has.

Invariants: a job is in one lot at most. One that is offered again leaves its former lot. The numbers of lots only rise,
so those up to the highest one at a branch are older than the branch.
"""

from __future__ import annotations

from collections.abc import Iterable

from buoy.core.batch.lots import JobEnd


class OfferedJobs:
    """Jobs by node, with the number of their lot."""

    def __init__(self) -> None:
        self._lots: dict[int, int] = {}
        self._members: dict[int, dict[int, None]] = {}
        # The highest lot that had jobs when the run was last branched.
        self._last_before_branch = 0

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

    def branched(self) -> None:
        """The run continues on a new branch: all lots so far are older."""
        self._last_before_branch = max(self._members, default=0)

    def frees(self, node: int, end: JobEnd) -> bool:
        """Whether an offered job is to be offered again: it was given back, or cancelled in a lot before the branch.

        A cancelled run cancels its lots, and their reports may reach it only after a retry. By then nothing of the job
        runs. A job that a person cancels is not in its lot any more when the lot reports it.
        """
        cancelled = end.error is not None and end.error.kind == "cancelled"
        return end.returned or (cancelled and self._lots[node] <= self._last_before_branch)
