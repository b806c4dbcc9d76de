"""Code: a run's workflow code (or spec) in this process: made, replayed, fed with outcomes in log order, and dropped.

Invariants: outcomes reach the code in the order of the log; while the run is paused or its runner stops they are
withheld. The code never runs after `drop`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from buoy.core.batch.lots import JobsMessage
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.lineage import visible
from buoy.core.log.timeline import as_seen
from buoy.engine.batch.decider import BatchDecider
from buoy.engine.batch.lot import LotWorkflow, read_lot
from buoy.engine.batch.lot_decider import LotDecider
from buoy.engine.code.async_decider import AsyncDecider
from buoy.engine.code.protocol import Decider
from buoy.engine.code.sync_decider import SyncDecider
from buoy.engine.spec.decider import SpecDecider
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput, NotAllowedHere

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution

_REPLAYED = (AsyncDecider, SpecDecider, LotDecider)


class Code:
    """The workflow's code, async or sync."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._decider: Decider | None = None
        # Outcomes that the code has not seen yet; None stands for a cancel request.
        self._withheld: deque[tuple[LeafId | None, Any, float]] | None = None
        # What was withheld is seen then (see `core.log.timeline`).
        self.resumed_at = 0.0

    @property
    def begun(self) -> bool:
        return self._decider is not None

    @property
    def busy(self) -> bool:
        """Whether it is executing at this moment, in a thread of its own."""
        return self._decider is not None and self._decider.busy

    def begin(self) -> None:
        """Runs the code of a new run until it waits."""
        try:
            self._decider = self._make()
            if isinstance(self._decider, _REPLAYED):
                self._execution.history.forget()
            self._decider.begin(self._execution.state.created_at)
        except Exception as error:  # noqa: BLE001 - see `fail_safely`
            self._execution.fail_safely(error)

    def make(self) -> None:
        """Makes the code, for a replay. `BadInput`: the run's input does not fit its parameters."""
        self._decider = self._make()

    async def replay(self, log: Sequence[e.Event], pending: Sequence[e.Event]) -> None:
        """Brings the code back to where the log ends. `pending`: what was recorded since, including the claim."""
        assert self._decider is not None
        shown = log if self._execution.state.sees_all else _to_replay(log)
        began_at, seen = as_seen(log, pending, shown)
        await self._decider.replay(seen, began_at)

    def check_replayed(self) -> None:
        """All outcomes were delivered: the code must have asked for all that the log has, and wait for what is open."""
        if isinstance(self._decider, _REPLAYED):
            self._execution.history.finish()
            self._decider.check_pending()
            self._execution.bind()
            self._execution.history.close()
            self._execution.leaves.take_up()

    def _make(self) -> Decider:
        execution = self._execution
        created = execution.state.created
        assert created is not None
        if isinstance(execution.workflow, SpecWorkflow):
            plan = execution.workflow.plan(created.input)
            make = BatchDecider if created.placement == "batch" else SpecDecider
            return make(execution, plan, execution.host.specs.kit)
        if isinstance(execution.workflow, LotWorkflow):
            kit = execution.host.specs.kit
            if kit.jobs is None:
                raise NotAllowedHere("this process has no room for jobs; start `buoy runner`")
            return LotDecider(execution, read_lot(created.input), kit.jobs)
        args, kwargs = execution.workflow.arguments.decode(created.input)
        if execution.workflow.is_async:
            return AsyncDecider(execution, execution.workflow.fn, args, kwargs)
        return SyncDecider(execution, execution.workflow.fn, args, kwargs, execution.host.workflow_pool)

    def deliver(self, leaf: LeafId | None, outcome: Any, at: float) -> None:
        """An outcome for the code (None: a cancel request); kept for later while outcomes are withheld."""
        execution, decider = self._execution, self._decider
        if decider is None or execution.delivery_paused:
            self._withheld = self._withheld or deque()
            self._withheld.append((leaf, outcome, at))
            execution.has_undelivered = True
            return
        try:
            if leaf is None:
                decider.cancel(at)
            else:
                decider.deliver(leaf, outcome, at)
        except Exception as error:  # noqa: BLE001 - see `fail_safely`
            execution.fail_safely(error)

    def receive(self, number: int, body: JobsMessage, by: str | None) -> None:
        """A message about jobs. Code that is no batch run refuses it."""
        if not isinstance(self._decider, BatchDecider | LotDecider):
            raise BadInput("this run has no jobs: only `buoy submit` makes a run that has")
        self._decider.receive(number, body, by)

    def catch_up(self) -> None:
        """Delivers what was withheld, as far as it may be."""
        while self._withheld and self._decider is not None and not self._execution.delivery_paused:
            leaf, outcome, at = self._withheld.popleft()
            self.deliver(leaf, outcome, max(at, self.resumed_at))

    def resume_code(self) -> None:
        """The pause is over: lets the code continue."""
        self.catch_up()
        if self._decider is not None:
            self._decider.resume_code()

    def drop(self) -> None:
        self._withheld = None
        if self._decider is not None:
            self._decider.detach()
            self._decider = None


def _to_replay(log: Sequence[e.Event]) -> list[e.Event]:
    """What the current branch sees, without the cancel requests that an end met which the branch has left behind."""
    shown = visible(log)
    if len(shown) == len(log):
        return shown
    seen = {event.seq for event in shown}
    left = max((event.seq for event in log if isinstance(event.body, e.ENDINGS) and event.seq not in seen), default=0)
    return [event for event in shown if event.seq > left or not isinstance(event.body, e.CancelRequested)]
