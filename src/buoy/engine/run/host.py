"""Host: what a runner gives to its executions, and what it wants to know about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from buoy.core.ids import RunId, RunnerId
from buoy.engine.run.lingering_threads import Lingering
from buoy.engine.run.outbox import Outbox
from buoy.engine.services.journal import Journal
from buoy.engine.services.step_tasks import StepTasks
from buoy.engine.services.thread_pool import ThreadPool
from buoy.engine.services.timers import Timers
from buoy.engine.spec.library import SpecLibrary
from buoy.ports.host import AttemptSpans, Clock, Ids
from buoy.ports.records import Progress

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


class Host(Protocol):
    """A runner, as its executions see it. A protocol, since the room of the runner is above this one."""

    id: RunnerId
    clock: Clock
    ids: Ids
    journal: Journal
    timers: Timers
    # The execution whose turn it is at this moment, for the watch over the loop.
    turning: Execution | None
    step_tasks: StepTasks
    step_pool: ThreadPool | None
    workflow_pool: ThreadPool | None
    lingering: Lingering
    outbox: Outbox
    specs: SpecLibrary
    # None: this process is not traced.
    spans: AttemptSpans | None

    def rested(self, execution: Execution) -> None: ...

    def ended(self, execution: Execution) -> None: ...

    def lost(self, execution: Execution) -> None: ...

    def broken(self, execution: Execution, error: Exception) -> None: ...

    def note(self, text: str, error: Exception | None = None) -> None: ...

    def progressed(self, run_id: RunId, progress: Progress) -> None: ...
