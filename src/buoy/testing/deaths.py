"""Deaths: the part of a test's liveness that is the same in all of them. It looks inline, and leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable

from buoy.core.ids import RunnerId
from buoy.ports.host import Sight
from buoy.ports.records import Evidence, Proof, RunnerRecord


class InlineLiveness:
    """Every runner is seen and lives, unless a subclass says otherwise."""

    proof: Proof = "lock"

    def announce(self, runner: RunnerId) -> None:
        """Nothing: the lock is the process itself."""

    def withdraw(self, runner: RunnerId) -> None:
        """Nothing: a process that deregistered is gone in the store too."""

    def sees(self, record: RunnerRecord) -> bool:
        return True

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        return self.proof_by_name(record.info.id)

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        return None

    async def look(self, records: Iterable[RunnerRecord]) -> dict[RunnerId, Sight]:
        return {
            each.info.id: Sight(seen=self.sees(each), proof=self.proof_of_death(each), doubt=each.unreadable)
            for each in records
        }

    async def left_behind(self) -> list[RunnerId]:
        return []

    async def clear(self, runners: Iterable[RunnerId]) -> int:
        return 0
