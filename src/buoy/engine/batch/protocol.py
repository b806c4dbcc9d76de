"""What the deciders of batch runs need of their execution.

Absent on purpose: any behaviour. See `engine.run.execution`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from buoy.core.batch.lots import EndedJobs, JobEnd
from buoy.core.ids import LeafId, RunId
from buoy.core.limits import JOBS_SENT_BYTES_MAX, JOBS_SENT_MAX
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.engine.services.timers import Timers
from buoy.engine.spec.walk import Recording
from buoy.ports.host import Clock
from buoy.ports.records import Message

Done = Callable[[Exception | None], None]


class Sender(Protocol):
    """Sends messages until that is certain."""

    def send(self, message: Message, done: Done) -> None: ...


class JobHost(Protocol):
    """The runner, as the deciders of batch runs see it."""

    timers: Timers
    clock: Clock

    @property
    def outbox(self) -> Sender: ...


class Nursery(Protocol):
    """Creates child runs, and gives them up."""

    def start(self, started: e.ChildStarted, workflow: None) -> None: ...

    def give_up(self, leaf: LeafId) -> None: ...


class JobExecution(Recording, Protocol):
    """The execution of a batch run, or of a lot."""

    has_undelivered: bool

    @property
    def host(self) -> JobHost: ...

    @property
    def children(self) -> Nursery: ...

    @property
    def detached(self) -> bool: ...

    def after_commit(self, effect: Callable[[], None]) -> None: ...

    def turn(self, work: Callable[..., None], *args: Any) -> None: ...


def cancelled(reason: str) -> e.ErrorInfo:
    """The error of a job that was asked to stop."""
    return e.ErrorInfo(type="Cancelled", message=reason, retryable=False, kind="cancelled")


def step_of(leaf: LeafId) -> str:
    """The step that a job is."""
    return leaf.rpartition("#")[0]


def check_sent(error: Exception | None) -> None:
    """A message that could not be sent pauses its run."""
    if error is not None:
        raise error


def jobs_message(to: RunId, by: RunId, dedupe: str, body: Any) -> Message:
    """A message about jobs."""
    return Message(to, "jobs", f"jobs:{by}:{dedupe}", body, by=by)


def ended_message(lot: RunId, to: RunId, ends: Sequence[JobEnd], first: int) -> tuple[Message, int]:
    """A message of a lot about its ends from that one on, as many as fit, and the place of the next one."""
    sent: list[JobEnd] = []
    size = 0
    for end in ends[first : first + JOBS_SENT_MAX]:
        size += len(msgspec.json.encode(end))
        if sent and size > JOBS_SENT_BYTES_MAX:
            break
        sent.append(end)
    last = first + len(sent)
    body = codec.encode(EndedJobs(lot, tuple(sent)), "results of jobs")
    return jobs_message(to, lot, f"{first}-{last}", body), last
