"""Orphans of a cluster: allocations that ended or vanished, and runners that were lost with them. Pure.

Invariants: the order is that of the findings below: active allocations, pending ones, then runners. A state that is not
understood changes nothing. Absence counts only at the second look. Nothing is judged by silence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from buoy.core.batch.allocations import Allocation, AllocationStatus, ClusterState
from buoy.core.batch.slurm_text import Cause, Phase, SlurmJob
from buoy.core.log import cluster_changes as c

OrphanCode: TypeAlias = Literal["J1", "J2", "J3", "J5", "J6", "J7"]


class ClusterOrphan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One finding about an allocation. `runners`: those that are proven dead by it; `jobs`: those that they ran.

    `claimed`: jobs that they had claimed and not started (J4).
    """

    code: OrphanCode
    allocation: str | None = None
    job_id: str | None = None
    cause: str | None = None
    state: str | None = None
    runners: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()


class RunnerSeat(msgspec.Struct, frozen=True):
    """A runner that is registered as living, and the allocation that it says it is in."""

    runner: str
    allocation: str
    job_id: str
    restart: int = 0


class OrphansFound(msgspec.Struct, frozen=True):
    """What was found, what is to be recorded, which names have to be looked for again, and which jobs are twins."""

    found: tuple[ClusterOrphan, ...]
    changes: tuple[c.ClusterChange, ...]
    missing: tuple[str, ...]
    twins: tuple[str, ...]


class _Search:
    def __init__(
        self,
        cluster: ClusterState,
        jobs: Mapping[str, Sequence[SlurmJob]],
        seats: Sequence[RunnerSeat],
        missed: Collection[str],
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._seats = seats
        self._missed = missed
        self.found: list[ClusterOrphan] = []
        self.changes: list[c.ClusterChange] = []
        self.missing: list[str] = []
        self.twins: list[str] = []

    def search(self) -> OrphansFound:
        live = self._cluster.live
        for status in (AllocationStatus.ACTIVE, AllocationStatus.PENDING):
            for allocation in live:
                if allocation.status is status:
                    self._look(allocation)
        self._lost_runners()
        return OrphansFound(tuple(self.found), tuple(self.changes), tuple(self.missing), tuple(self.twins))

    def _look(self, allocation: Allocation) -> None:
        row = self._row(allocation)
        if row is None:
            self._absent(allocation)
            return
        if allocation.job_id is None:
            self.changes.append(c.AllocationSubmitted(allocation.name, row.job_id, row.cluster))
            self.found.append(ClusterOrphan(code="J5", allocation=allocation.name, job_id=row.job_id, state=row.state))
        restart = row.restart or 0
        match row.phase:
            case Phase.ENDED:
                self._ended(allocation, row)
            case Phase.ACTIVE if allocation.status is AllocationStatus.PENDING or restart > allocation.restart:
                self.changes.append(c.AllocationActive(allocation.name, restart))
                self._requeued(allocation, row, restart)
            case Phase.WAITING:
                # A controller that lost its state has the same restart count: it starts the job a second time.
                if restart > allocation.restart or allocation.status is AllocationStatus.ACTIVE:
                    self.changes.append(c.AllocationRequeued(allocation.name, restart))
                self._requeued(allocation, row, restart)

    def _row(self, allocation: Allocation) -> SlurmJob | None:
        """The job of an allocation: by name and, if it is known, by id. Others of its name were submitted twice."""
        rows = self._jobs.get(allocation.name, ())
        mine = [each for each in rows if allocation.job_id in (None, each.job_id)]
        chosen = min(mine, key=lambda each: (each.phase is Phase.ENDED, _number(each.job_id)), default=None)
        if chosen is not None:
            self.twins += [each.job_id for each in rows if each is not chosen and each.phase is not Phase.ENDED]
        return chosen

    def _absent(self, allocation: Allocation) -> None:
        if allocation.name not in self._missed:
            self.missing.append(allocation.name)
        elif allocation.job_id is not None:
            gone = SlurmJob(job_id=allocation.job_id, name=allocation.name, state="", phase=Phase.ENDED)
            self._ended(allocation, gone)

    def _ended(self, allocation: Allocation, row: SlurmJob) -> None:
        code: OrphanCode = "J1" if allocation.status is AllocationStatus.ACTIVE else "J2"
        cause, state = str(row.cause or Cause.UNKNOWN), row.state
        runners = tuple(seat.runner for seat in self._seats if seat.allocation == allocation.name)
        if runners and code == "J2":
            # It started and ended between two looks.
            self.changes.append(c.AllocationActive(allocation.name, allocation.restart))
        self.changes.append(
            c.AllocationEnded(allocation.name, cause, state, row.elapsed_s, row.peak_memory_bytes)
        )  # fmt: skip
        self.found.append(
            ClusterOrphan(
                code="J1" if runners else code,
                allocation=allocation.name,
                job_id=row.job_id,
                cause=cause,
                state=state or None,
                runners=runners,
            )
        )

    def _requeued(self, allocation: Allocation, row: SlurmJob, restart: int) -> None:
        """Runners of an earlier start of the job are gone. So are all if it waits: they were read before the queue."""
        seats = [seat for seat in self._seats if seat.allocation == allocation.name]
        again = row.phase is Phase.WAITING and (bool(seats) or allocation.status is AllocationStatus.ACTIVE)
        lost = tuple(seat.runner for seat in seats if again or seat.restart < restart)
        if lost or again or restart > allocation.restart:
            self.found.append(
                ClusterOrphan(
                    code="J6",
                    allocation=allocation.name,
                    job_id=row.job_id,
                    cause="requeued",
                    state=row.state,
                    runners=lost,
                )
            )

    def _lost_runners(self) -> None:
        """Runners whose allocation was recorded as ended before: the recorder was killed before it declared them."""
        known = {runner for orphan in self.found for runner in orphan.runners}
        for seat in self._seats:
            allocation = self._cluster.allocations.get(seat.allocation)
            if allocation is None or allocation.live or seat.runner in known:
                continue
            self.found.append(
                ClusterOrphan(
                    code="J3",
                    allocation=allocation.name,
                    job_id=allocation.job_id,
                    cause=allocation.cause,
                    state=allocation.state,
                    runners=(seat.runner,),
                )
            )


def find_orphans(
    cluster: ClusterState,
    jobs: Mapping[str, Sequence[SlurmJob]],
    seats: Sequence[RunnerSeat],
    missed: Collection[str] = (),
) -> OrphansFound:
    """What a look at the scheduler shows. `missed`: names that an earlier look did not find either."""
    return _Search(cluster, jobs, seats, missed).search()


def _number(job_id: str) -> int:
    digits = job_id.partition("_")[0]
    return int(digits) if digits.isdigit() else 0
