"""Execution: one run in this process, from its claim until it ends, is released or is lost. One incarnation.

Invariants:
- All that one stimulus leads to (an outcome, a message, a due time) is one commit; at most one is in flight.
- Effects (bodies, alarms, answers to whoever waits) start only when the commit that they rest on is durable.
- After `detach` nothing is recorded: late results, alarms and commits of this incarnation count for nothing.
- While the run is paused, or its runner stops, outcomes are recorded but withheld from the code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from buoy.core import codec
from buoy.core import events as e
from buoy.core.document import document
from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.lifecycle import RESTING, TERMINAL, Status, check_move
from buoy.core.lineage import visible
from buoy.core.state import State, fold
from buoy.engine.alarms import Alarms
from buoy.engine.bodies import error_info
from buoy.engine.context import Request
from buoy.engine.deciders import AsyncDecider, Decider
from buoy.engine.definitions import Workflow
from buoy.engine.endings import ending_for
from buoy.engine.journal import Journal
from buoy.engine.leaves import Leaves
from buoy.engine.messages import Mailbox
from buoy.engine.pool import Pool
from buoy.engine.replay import Ended, History
from buoy.engine.sync_decider import SyncDecider
from buoy.errors import BadInput, Detached, Diverged, NotJson, TooLarge
from buoy.ports import Clock, Committed, Held, Ids, Message, Outcome, Progress, Released, TaskChange, Write
from buoy.ports import Ended as TaskEnded


class Host(Protocol):
    """What a runner gives to its executions, and what it wants to know of them."""

    id: RunnerId
    clock: Clock
    ids: Ids
    journal: Journal
    alarms: Alarms
    step_pool: Pool | None
    workflow_pool: Pool | None

    def rested(self, execution: Execution) -> None: ...

    def ended(self, execution: Execution) -> None: ...

    def lost(self, execution: Execution) -> None: ...

    def progressed(self, run_id: RunId, progress: Progress) -> None: ...


class Execution:
    """Drives one run."""

    def __init__(self, host: Host, workflow: Workflow[..., Any], run_id: RunId, events: Sequence[e.Event] = ()) -> None:
        self.run_id = run_id
        self.workflow = workflow
        self.host = host
        self.state: State = fold(run_id, events)
        self.mailbox = Mailbox(self)
        self.leaves = Leaves(self)
        self.result: msgspec.Raw = e.NULL
        self.detached = False
        self.stopping = False
        self.replaying = False
        self._log: Sequence[e.Event] = events
        self.history = History(visible(events))
        self._decider: Decider | None = None
        self._ending: e.Ending | None = None
        self._claim: list[e.Body] = []
        # Outcomes that the code has not seen yet, in log order; None stands for a cancel request.
        self._withheld: deque[tuple[LeafId | None, Any, float]] = deque()
        self._buffer: list[e.Event] = []
        self._effects: list[Callable[[], None]] = []
        self._in_flight: list[Callable[[], None]] | None = None
        self._durable_seq = self.state.head_seq
        self._task_change: TaskChange | None = Held(host.id)

    @property
    def ended(self) -> bool:
        return self.state.status in TERMINAL

    @property
    def withholds(self) -> bool:
        """Whether outcomes are kept from the code for now."""
        return self.stopping or self.state.pause is not None

    @property
    def settled(self) -> bool:
        """Nothing of this run is executing or being written."""
        busy = self._decider is not None and self._decider.busy
        return self._in_flight is None and not self._buffer and not self.leaves.executing and not busy

    # ---- begin

    def create(self, created: e.WorkflowCreated) -> None:
        """A new run, claimed from its first event on."""
        self.record(created)
        self.record(e.Claimed(runner=self.host.id, cause="created"))
        self._guard(self._make_decider)
        if isinstance(self._decider, AsyncDecider):
            self.history.forget()
        if self._decider is not None:
            self._guard(lambda: self._need_decider().begin(self.state.created_at))
        self.flush()

    async def resume(self, claimed: e.Claimed, messages: Sequence[Message]) -> None:
        """A run that has a log: claims it, replays it, and goes on."""
        self._claim = [claimed]
        if self.state.pause is not None and self.state.pause.reason == "version":
            self._claim.append(e.Resumed(by=f"runner with version {self.workflow.version}"))
        for body in self._claim:
            self.record(body)
        if self.state.pause is None and not self.ended:
            await self._replay()
        self.mailbox.take(messages)
        if self._decider is None and self.state.pause is None and not self.ended:
            await self._replay()
        self._give_withheld()
        self.flush()
        self.look_at_rest()

    async def _replay(self) -> None:
        self._guard(self._make_decider)
        if self._decider is None:
            return
        self.replaying = True
        try:
            await self._decider.replay(visible(self._log), self.state.created_at)
            self.replaying = False
            if self.detached:
                return
            if self._ending is not None:
                self.history.finish()
                self._end(self._ending)
            elif not isinstance(self._decider, SyncDecider):
                self.history.finish()
                self.history.started.clear()
                self.leaves.take_up()
        except Diverged as error:
            self.diverged(error)
        finally:
            self.replaying = False
            self._log = ()

    def _make_decider(self) -> None:
        created = self.state.created
        assert created is not None
        args, kwargs = self.workflow.arguments.decode(created.input)
        if self.workflow.is_async:
            self._decider = AsyncDecider(self, self.workflow.fn, args, kwargs)
        else:
            self._decider = SyncDecider(self, self.workflow.fn, args, kwargs, self.host.workflow_pool)

    def _need_decider(self) -> Decider:
        assert self._decider is not None
        return self._decider

    def _guard(self, work: Callable[[], None]) -> None:
        """Runs workflow code; a difference from the log pauses the run, an input that no longer fits fails it."""
        try:
            work()
        except Diverged as error:
            self.diverged(error)
        except BadInput as error:
            self._end(e.WorkflowFailed(error=error_info(error, retryable=False)))

    # ---- what workflow code asks for

    def epoch(self, leaf: LeafId) -> int:
        return self.state.epochs.get(leaf, 0)

    def open_leaf(self, request: Request) -> None:
        """The code asks for a leaf: one that the log has, or a new one."""
        if self.detached:
            raise Detached(f"run {self.run_id} is no longer driven here")
        self.leaves.open(request, in_log=self.history.match(request))

    def cancel_leaf(self, leaf: LeafId) -> None:
        """The code gave a leaf up."""
        if leaf in self.state.open and not self.detached:
            self.record(e.LeafCancelled(leaf=leaf))
            self.after_commit(lambda: self.leaves.drop(leaf))

    def code_returned(self, value: Any) -> None:
        what = f"the result of workflow {self.workflow.name}"
        try:
            self._end(e.WorkflowCompleted(result=codec.encode(value, what)))
        except (NotJson, TooLarge) as error:
            self._end(e.WorkflowFailed(error=error_info(error, retryable=False)))

    def code_raised(self, error: BaseException) -> None:
        if isinstance(error, Diverged):
            self.diverged(error)
        elif not isinstance(error, Detached):
            self._end(ending_for(error, self.state))

    def _end(self, ending: e.Ending) -> None:
        if self.detached or self.ended:
            return
        if self.replaying:
            # Kept until all of the log was delivered: an end that comes too early is a divergence.
            self._ending = ending
            return
        self.record(ending)
        if isinstance(ending, e.WorkflowCompleted):
            self.result = ending.result
        self.leaves.drop_all()
        self._task_change = TaskEnded()

    def diverged(self, error: Diverged) -> None:
        """Code and log disagree: nothing that this replay asked for counts, and the run waits for a person."""
        self.leaves.drop_all()
        if self._decider is not None:
            self._decider.detach()
            self._decider = None
        if self._log:
            self._buffer.clear()
            self._effects.clear()
            self.state = fold(self.run_id, self._log)
            for body in self._claim:
                self.record(body)
        bound = self.state.version
        reason = "nondeterminism" if bound == self.workflow.version else "version"
        where = "" if reason == "nondeterminism" else f" (run is bound to {bound}, this is {self.workflow.version})"
        self._ending = None
        self.record(e.Paused(reason=reason, detail=f"{error}{where}"))

    # ---- outcomes and requests from outside

    def settle(self, body: Ended, outcome: Any) -> None:
        """A leaf has its outcome: it is recorded, and the code sees it (later, if it is withheld)."""
        self.record(body)
        at = self.state.updated_at
        if self.withholds or self._decider is None:
            self._withheld.append((body.leaf, outcome, at))
        else:
            self._deliver(body.leaf, outcome, at)

    def _deliver(self, leaf: LeafId | None, outcome: Any, at: float) -> None:
        decider = self._need_decider()
        if leaf is None:
            self._guard(lambda: decider.cancel(at))
        else:
            self._guard(lambda: decider.deliver(leaf, outcome, at))

    def _give_withheld(self) -> None:
        while self._withheld and not self.withholds and self._decider is not None:
            self._deliver(*self._withheld.popleft())

    def pause(self, paused: e.Paused) -> None:
        self.record(paused)

    def unpause(self, resumed: e.Resumed) -> None:
        self.record(resumed)
        if self._decider is not None:  # else the code did not begin yet in this process: `resume` replays it
            self._give_withheld()
            self.leaves.take_up()

    def cancel(self, requested: e.CancelRequested) -> None:
        self.record(requested)
        if self.withholds or self._decider is None:
            self._withheld.append((None, None, self.state.updated_at))
        else:
            self._deliver(None, None, self.state.updated_at)

    def take(self, messages: Sequence[Message]) -> None:
        """New messages came for this run."""
        if self.detached:
            return
        self.mailbox.take(messages)
        self.flush()
        self.look_at_rest()

    # ---- the log

    def record(self, body: e.Body) -> None:
        """Adds an event to the next commit."""
        state = self.state
        check_move(state.status, type(body))
        event = e.Event(
            state.head_seq + 1,
            max(self.host.clock.now(), state.updated_at),
            body,
            state.branch,
            e.VERSIONS.get(type(body), 1),
            None if self._buffer else self.host.ids.nonce(),
        )
        state.apply(event)
        self._buffer.append(event)

    def after_commit(self, effect: Callable[[], None]) -> None:
        """Does something when all that was recorded so far is durable."""
        self._effects.append(effect)

    def flush(self) -> None:
        """Hands the recorded events to the journal, unless a commit is in flight: then they go with the next."""
        if self._in_flight is not None or not self._buffer or self.detached:
            return
        write = Write(
            self.run_id,
            self._durable_seq,
            tuple(self._buffer),
            document(self.state),
            self._task_change,
            self.mailbox.seen,
        )
        self._buffer = []
        self._in_flight, self._effects = self._effects, []
        self._task_change = None
        self.host.journal.submit(write, self._committed)

    def _committed(self, outcome: Outcome) -> None:
        effects, self._in_flight = self._in_flight or [], None
        if self.detached:
            return
        if not isinstance(outcome, Committed):
            self.detach()
            self.host.lost(self)
            return
        self._durable_seq = outcome.head_seq
        for effect in effects:
            effect()
        self.flush()
        if self.ended and self._in_flight is None:
            self.detach()
            self.host.ended(self)
        else:
            self.look_at_rest()

    # ---- the end of this incarnation

    def look_at_rest(self) -> None:
        """Tells the runner when nothing executes and only a time or a message can move the run."""
        resting = self.state.status in RESTING or self.state.status is Status.PAUSED or self.stopping
        if resting and not self.detached and self.settled:
            self.host.rested(self)

    def interrupt(self, signal: str) -> bool:
        """Graceful stop: gives the run back. False while something of it still executes."""
        if self.detached:
            return True
        if not self.settled:
            return False
        if self.state.status in RESTING or self.state.status is Status.PAUSED:
            return True  # Released without an event, by the runner.
        if self.state.status is not Status.INTERRUPTED:
            self._task_change = Released(due_at=self.host.clock.now(), seen=self.mailbox.seen, cause="interrupted")
            self.record(e.Interrupted(signal=signal, runner=self.host.id))
            self.after_commit(self._given_back)
            self.flush()
        return False

    def _given_back(self) -> None:
        self.detach()
        self.host.lost(self)

    def detach(self) -> None:
        """This incarnation no longer speaks for the run."""
        self.detached = True
        self._effects.clear()
        self._buffer.clear()
        self.leaves.drop_all()
        if self._decider is not None:
            self._decider.detach()
            self._decider = None
