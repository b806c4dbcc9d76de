"""Changes of jobs: reset, cancel and disable, as messages to the run that has them.

Invariants: a request that makes no sense for one of the jobs is refused whole. A request is one message: the owner
carries it out in one commit, or finds that it came too late for some of the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from buoy.core.batch.jobs import JobStatus, JobView
from buoy.core.batch.lots import JobsMessage, ResetJobs, StopJobs
from buoy.core.ids import RunId, leaf_id
from buoy.core.log import codec
from buoy.core.spec.problems import names
from buoy.engine.client.client import Client
from buoy.engine.client.requests import waits_for_whom
from buoy.engine.services.commits import send_surely
from buoy.errors import BadInput, WrongState
from buoy.operations.batch.jobs import BatchLog, read_batch, views_of
from buoy.ports.records import Message

Change: TypeAlias = Literal["reset", "cancel", "disable"]
_RESETTABLE = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.DISABLED)


class JobsChanged(msgspec.Struct, frozen=True):
    """A request about jobs that the run has, or will have. `text` says who will handle it."""

    run_id: RunId
    change: Change
    jobs: tuple[str, ...]
    text: str


async def change_jobs(
    client: Client, run_id: RunId, change: Change, jobs: Sequence[str], reason: str | None = None
) -> JobsChanged:
    """Asks the run to reset, cancel or disable these jobs."""
    batch = await read_batch(client, run_id)
    if batch.document.ended:
        raise WrongState(f"run {run_id} is {batch.document.status}; its jobs are over")
    views = {view.job: view for view in await views_of(client, batch)}
    for name in jobs:
        _check(batch, views, name, change)
    leaves = tuple(leaf_id("", name, 1) for name in jobs)
    body = ResetJobs(leaves) if change == "reset" else StopJobs(leaves, disable=change == "disable", reason=reason)
    return JobsChanged(run_id, change, tuple(jobs), await send_jobs(client, run_id, body))


def _check(batch: BatchLog, views: dict[str, JobView], name: str, change: Change) -> None:
    view = views.get(name)
    if view is None:
        raise BadInput(f"run {batch.document.run_id} has no job {name!r}; {names(batch.plan.index, name)}")
    if view.status is JobStatus.COMPLETED:
        again = f"; `buoy retry {batch.document.run_id} --from {name}` runs it again with all that needs it"
        raise WrongState(f"job {name} is completed{again if change == 'reset' else ''}")
    if change == "reset" and view.lost:
        raise WrongState(f"job {name} was lost with its runner; no reset is needed: the next runner runs it again")
    if change == "reset" and view.status not in _RESETTABLE:
        raise WrongState(f"job {name} is {view.status}; only a job that failed or was stopped can be reset")


async def send_jobs(client: Client, run_id: RunId, body: JobsMessage) -> str:
    """Sends a message about jobs, and says who will read it."""
    stored = codec.encode(body, "a request about jobs")
    message = Message(run_id, "jobs", f"jobs:{client.ids.nonce()}", stored, by=client.actor)
    await send_surely(client.store, message)
    return await waits_for_whom(client, run_id)
