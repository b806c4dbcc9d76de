"""The port of a batch scheduler: submit, states of many jobs by one question, cancel, and kinds of nodes.

Invariants: an answer that did not come, or cannot be read whole, is `Unavailable`, never "absent". A job is asked for
by its name, which no other job has, so one whose id was never heard is found as well.
The adapter for Slurm is in `host/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from buoy.core.batch.slurm_text import Partition, SlurmJob


class AllocationPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where in an allocation a runner is. `restart`: how often the job was queued again under its id.

    `launch`: which runner in this place it is. The batch script starts the next only when the last one has ended. So a
    runner with a higher restart or launch proves the end of those before it. `start`: a token of this start of the
    batch script. A controller that lost its state starts a job again under the same id and restart count.
    """

    cluster: str
    job_id: str
    name: str
    restart: int = 0
    task: int = 0
    launch: int = 1
    start: str = ""


class SchedulerAnswer(msgspec.Struct, frozen=True):
    """The jobs of each name that was asked for. A name without jobs is unknown to the queue.

    `accounted`: accounting was asked for the names that the queue does not know or shows as ended, and answered.
    """

    jobs: Mapping[str, list[SlurmJob]]
    accounted: bool = False


class BatchSystem(Protocol):
    """One batch scheduler."""

    async def submit(self, options: Sequence[str], script: str) -> tuple[str, str]:
        """The job id and the cluster. Raises `Unavailable` if the scheduler refused or did not answer: look by name."""
        ...

    async def states(self, names: Collection[str], age_s: float, *, accounts: bool = True) -> SchedulerAnswer:
        """What the scheduler knows about jobs of these names, none of which is older than that.

        `accounts` False: only the queue is asked. Raises `Unavailable` if that is unknown.
        """
        ...

    async def cancel(self, job_ids: Iterable[str]) -> None:
        """Asks for their end. Jobs that ended already are left alone. Raises `Unavailable`."""
        ...

    async def partitions(self) -> list[Partition]:
        """The kinds of nodes. Raises `Unavailable`."""
        ...
