"""Lots: how many jobs one runner takes at a time, and what is written about them.

Invariants: a lot is about a minute of work, from 1 to 256 jobs, all of one group. Its number follows the numbers that
the log has already. A lot has everything that its jobs need to run: the runner reads no other log.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from buoy.core.ids import LeafId, RunId, effect_key, leaf_id
from buoy.core.limits import JOB_LOG_BYTES_MAX, LOT_EXPECTED_S, LOT_JOBS_MAX, LOT_S
from buoy.core.log import events as e
from buoy.core.spec.model import Resources

_SCOPE = ".lots"
# The cause of jobs that a lot gave back because its runner stops.
RETURNED = "returned"


class LotJob(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One job of a lot. `command`: its place in the commands of the lot, which many jobs share."""

    leaf: LeafId
    command: int = 0
    attempt: int = 1
    epoch: int = 0
    variables: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    retries: int = 0
    backoff_s: float = 1.0
    # Exit codes after which a retry makes sense; empty: after any.
    retry_on: tuple[int, ...] = ()
    # Its place in the commands of the lot: runs after a failure, before the next attempt.
    before_retry: int | None = None
    timeout_s: float | None = None
    grace_s: float = 5.0
    log_max_bytes: int = JOB_LOG_BYTES_MAX


class Lot(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The input of a lot's run."""

    run: RunId
    resources: Resources
    directory: str
    commands: tuple[str, ...]
    jobs: tuple[LotJob, ...]

    def key(self, job: LotJob) -> str:
        """The idempotency key of a job: that of its leaf in the run that offered it."""
        return effect_key(self.run, job.leaf, job.epoch)


class JobEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one job of a lot ended: with a result, or with an error. `returned`: it has not started, and will not."""

    leaf: LeafId
    attempt: int = 1
    result: msgspec.Raw = e.NULL
    error: e.ErrorInfo | None = None
    returned: bool = False


def job_end(body: e.StepCompleted | e.StepFailed) -> JobEnd:
    """How a job ended, by the log of its lot."""
    if isinstance(body, e.StepCompleted):
        return JobEnd(body.leaf, body.attempt, body.result)
    return JobEnd(body.leaf, body.attempt, error=msgspec.structs.replace(body.error, traceback=None))


class SpooledEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an attempt of a job ended, as its runner keeps it on disk while the store is away. `again`: it may retry."""

    key: str
    result: msgspec.Raw = e.NULL
    error: e.ErrorInfo | None = None
    again: bool = False


class EndedJobs(msgspec.Struct, frozen=True, tag="ended"):
    """Body of a message: jobs of a lot that ended."""

    lot: RunId
    ends: tuple[JobEnd, ...]


class ResetJobs(msgspec.Struct, frozen=True, tag="reset", omit_defaults=True):
    """Body of a message: jobs that failed are to run again, some of them with other limits.

    `recovery`: see `core.log.events.ResetBy`.
    """

    leaves: tuple[LeafId, ...]
    limits: dict[LeafId, e.JobLimits] = {}
    recovery: e.ResetBy = "person"

    def event(self, leaves: Iterable[LeafId], message: int, by: str | None) -> e.JobsReset:
        """The event that consumes it. `leaves`: the jobs that run again, those included that depend on them."""
        found, limits = tuple(leaves), self.limits
        return e.JobsReset(leaves=found, limits=limits, message=message, by=by, recovery=self.recovery)


class StopJobs(msgspec.Struct, frozen=True, tag="stop", omit_defaults=True):
    """Body of a message: jobs that are not to run. `disable`: what needs them runs without them."""

    leaves: tuple[LeafId, ...]
    disable: bool = False
    reason: str | None = None


JobsMessage = EndedJobs | ResetJobs | StopJobs


def lot_leaf(number: int) -> LeafId:
    """The leaf of a lot in the run that offers it. No step can have this name."""
    return leaf_id(_SCOPE, f"lot-{number}", 1)


def is_lot(leaf: LeafId) -> bool:
    """Whether a leaf is a lot."""
    return leaf.startswith(f"{_SCOPE}/")


def lot_number(leaf: LeafId) -> int:
    """The number of a lot."""
    return int(leaf.rpartition("-")[2].partition("#")[0])


class JobTimes:
    """How long the jobs of one group took so far."""

    def __init__(self) -> None:
        self._count = 0
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        self._count += 1
        self._total_s += seconds

    @property
    def mean_s(self) -> float | None:
        return self._total_s / self._count if self._count else None


def lot_size(resources: Resources, mean_s: float | None) -> int:
    """How many jobs of a group make about a minute of work.

    What was measured counts; else the limit of their time, which jobs stay below; else a guess.
    """
    expected_s = mean_s if mean_s is not None else LOT_EXPECTED_S if resources.time_s is None else resources.time_s
    if expected_s * LOT_JOBS_MAX <= LOT_S:
        return LOT_JOBS_MAX
    return max(1, min(LOT_JOBS_MAX, int(LOT_S / expected_s)))


def cut(nodes: Iterable[int], size: int) -> list[list[int]]:
    """These jobs as lots of that size, in order."""
    given = list(nodes)
    return [given[start : start + size] for start in range(0, len(given), size)]


class LotBuilder:
    """Collects the jobs of one lot; a command that several jobs share is stored once."""

    def __init__(self, run: RunId, resources: Resources, directory: str) -> None:
        self._run = run
        self._resources = resources
        self._directory = directory
        self._commands: dict[str, int] = {}
        self._jobs: list[LotJob] = []

    def command(self, text: str) -> int:
        """The place of a command in this lot."""
        return self._commands.setdefault(text, len(self._commands))

    def add(self, job: LotJob) -> None:
        self._jobs.append(job)

    def __len__(self) -> int:
        return len(self._jobs)

    def build(self) -> Lot:
        return Lot(
            run=self._run,
            resources=self._resources,
            directory=self._directory,
            commands=tuple(self._commands),
            jobs=tuple(self._jobs),
        )
