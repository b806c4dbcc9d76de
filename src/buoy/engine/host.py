"""Host: what a runner gives to its executions, and what it wants to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from buoy.core.ids import RunId
from buoy.engine.alarms import Alarms
from buoy.engine.births import Births
from buoy.engine.crew import Crew
from buoy.engine.ledger import LedgerHost
from buoy.engine.pool import Pool
from buoy.engine.spec_library import SpecLibrary
from buoy.ports import Progress

if TYPE_CHECKING:
    from buoy.engine.execution import Execution


class Host(LedgerHost, Protocol):
    """A runner, as its executions see it."""

    alarms: Alarms
    # The execution whose turn it is at this moment, for the watch over the loop.
    turning: Execution | None
    crew: Crew
    step_pool: Pool | None
    workflow_pool: Pool | None
    births: Births
    specs: SpecLibrary

    def rested(self, execution: Execution) -> None: ...

    def ended(self, execution: Execution) -> None: ...

    def lost(self, execution: Execution) -> None: ...

    def broken(self, execution: Execution, error: Exception) -> None: ...

    def note(self, text: str, error: Exception | None = None) -> None: ...

    def progressed(self, run_id: RunId, progress: Progress) -> None: ...
