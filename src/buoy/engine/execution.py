"""Execution: one run in this process, from its claim until it ends, is released or is lost. One incarnation.

Invariants:
- All that one stimulus leads to (an outcome, a message, a due time) is one commit (see `engine.ledger`).
- After `detach` nothing is recorded: late results, alarms and commits of this incarnation count for nothing.
- While the run is paused, or its runner stops, outcomes are recorded but withheld from the code.
- Whatever goes wrong in workflow code or in its replay ends or pauses the run; it never leaves it without an owner.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from buoy.core import events as e
from buoy.core.ids import LeafId, RunId
from buoy.core.lifecycle import RESTING, TERMINAL, Status
from buoy.core.lineage import visible
from buoy.core.state import State, fold
from buoy.core.versions import may_fit, pause_for
from buoy.engine.bodies import error_info
from buoy.engine.code import Code
from buoy.engine.context import Request
from buoy.engine.definitions import Workflow
from buoy.engine.duties import Duty, duties_of
from buoy.engine.endings import continuing, ending_for, returning
from buoy.engine.host import Host
from buoy.engine.kin import Kin
from buoy.engine.leaves import Leaves
from buoy.engine.ledger import Ledger
from buoy.engine.messages import Mailbox
from buoy.engine.replay import Ended, History
from buoy.engine.saga import Saga
from buoy.errors import BadInput, ContinueAsNew, Detached, Diverged, UserError
from buoy.ports import Ended as TaskEnded
from buoy.ports import Message, Released

_LOG = logging.getLogger("buoy.engine")
_AT_REST = RESTING | {Status.PAUSED}


class Execution:
    """Drives one run."""

    def __init__(self, host: Host, workflow: Workflow[..., Any], run_id: RunId, events: Sequence[e.Event] = ()) -> None:
        self.run_id = run_id
        self.workflow = workflow
        self.host = host
        self.state: State = fold(run_id, events)
        self.ledger = Ledger(host, run_id, self.state, self._committed, self._lost)
        self.record = self.ledger.record
        self.after_commit = self.ledger.after_commit
        self.mailbox = Mailbox(self)
        self.leaves = Leaves(self)
        self.history = History(visible(events))
        self.ending: e.Ending | None = None
        self.duties: list[Duty] = []
        self.kin = Kin(self)
        self.detached = False
        self.stopping = False
        self.held_back = False  # something was withheld: whoever takes the run next has to look at once
        self.replaying = False
        self._opening = False
        self._log: Sequence[e.Event] = events
        self._code = Code(self)
        self._saga: Saga | None = None
        self._ending: e.Ending | None = None
        self._claim: list[e.Body] = []

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
        executes = self.leaves.executing or self._code.busy or (self._saga is not None and self._saga.busy)
        return not executes and not self.kin.busy and not self.replaying and not self._opening and self.ledger.idle

    @property
    def at_rest(self) -> bool:
        """Only a time or a message can move it."""
        return self.settled and self.state.status in _AT_REST

    # ---- begin

    def create(self, created: e.WorkflowCreated) -> None:
        """A new run, claimed from its first event on."""
        self.record(created)
        self.record(e.Claimed(runner=self.host.id, cause="created"))
        try:
            self._code.begin()
        except Exception as error:  # noqa: BLE001 - see `misbehaved`
            self.misbehaved(error)
        self.flush()

    async def resume(self, claimed: e.Claimed | None, messages: Sequence[Message]) -> None:
        """A run that has a log: claims it (None: that is done), replays it and goes on; paused only if told so."""
        new_code = may_fit(self.state.pause, self.state.version, self.workflow.version)
        if self.state.pause is not None and not new_code and not self.mailbox.controls(messages):
            self.mailbox.glance(messages)
            self.ledger.task_change = None
            self.look_at_rest()
            return
        self._claim = [] if claimed is None else [claimed]
        if new_code:
            self._claim.append(e.Resumed(by=f"code of version {self.workflow.version}"))
        for body in self._claim:
            self.record(body)
        if self.state.pause is not None:
            self.mailbox.take_controls(messages)
        self._opening = True
        fits = self.state.pause is None and await self._replay()
        if fits:
            self._code.catch_up()
        if fits and self._code.begun:
            self.mailbox.take(messages)
            self.kin.give_up_again()
        else:  # nothing was consumed; but what was looked at must not wake the run again and again
            self.mailbox.glance(messages)
        self._log = ()
        self._opening = False
        self.flush()
        self.look_at_rest()

    async def _replay(self) -> bool:
        """Brings the code to where the log ends. False: code and log disagree, and the run is paused."""
        self.replaying = True
        try:
            await self._code.replay(self._log, self.ledger.pending)
            self.replaying = False
            if self._ending is not None:
                self.history.finish()
                self.bind()
                self._end(self._ending)
            else:
                self._code.check_replayed()
        except (Diverged, BadInput) as error:
            self.replaying = False
            self.diverged(error)
            return False
        except Exception as error:  # noqa: BLE001 - see `misbehaved`
            self.replaying = False
            self.misbehaved(error)
        finally:
            self.replaying = False
        return True

    def bind(self) -> None:
        """The code fits the log. What it adds must never be held against the version that the run had before."""
        if not self.ended and self.state.version != self.workflow.version:
            self.record(e.VersionBound(version=self.workflow.version, previous=self.state.version or None))

    def misbehaved(self, error: Exception) -> None:
        """What came out of workflow code, which keeps its own errors to itself. A difference from the log pauses the
        run; what the code must not do fails it; the rest is a fault of Buoy itself."""
        if isinstance(error, Diverged):
            self.diverged(error)
        elif isinstance(error, UserError):
            self._end(e.WorkflowFailed(error=error_info(error, retryable=False)))
        else:
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        """The run is held for a person, with the reason, instead of being lost in silence."""
        _LOG.exception("run %s: internal error", self.run_id, exc_info=error)
        self._drop_code()
        if not self.ended and self.state.pause is None and not self.detached:
            self.record(e.Paused(reason="hold", detail=f"internal error: {type(error).__name__}: {error}"))

    def _drop_code(self) -> None:
        self.leaves.drop_all()
        self._code.drop()

    # ---- what workflow code asks for

    def open_leaf(self, request: Request) -> None:
        """The code asks for a leaf: one that the log has, or a new one."""
        if self.detached:
            raise Detached(f"run {self.run_id} is no longer driven here")
        self.leaves.open(request, in_log=not self.history.over and self.history.match(request))

    def cancel_leaf(self, leaf: LeafId) -> None:
        """The code gave a leaf up. A step that may have to be undone is left to end: its outcome must be known."""
        if leaf in self.state.open and not self.detached and leaf not in self.leaves.compensable:
            if self.state.open[leaf].kind == "child":
                self.after_commit(lambda: self.kin.give_up(leaf))
            self.record(e.LeafCancelled(leaf=leaf))
            self.after_commit(lambda: self.leaves.drop(leaf))

    def code_returned(self, value: Any) -> None:
        self._end(returning(self.workflow, value))

    def code_raised(self, error: BaseException) -> None:
        if isinstance(error, Diverged):
            self.diverged(error)
        elif isinstance(error, ContinueAsNew):
            self._end(continuing(self.workflow, self.run_id, error))
        elif not isinstance(error, Detached):
            self._end(ending_for(error, self.state))

    def _end(self, ending: e.Ending) -> None:
        if self.detached or self.ended:
            return
        if self.replaying:
            # Kept until all of the log was delivered: an end that comes too early is a divergence.
            self._ending = ending
        elif self.leaves.compensable and not isinstance(ending, e.WorkflowCompleted):
            if self._saga is None:
                self._saga = Saga(self, ending)
                self._saga.begin()
        else:
            self.close(ending)

    def close(self, ending: e.Ending) -> None:
        """The run ends here."""
        self.duties = duties_of(self.state, ending, self.kin.certain)
        self.record(ending)
        self.ending = ending
        self.leaves.drop_all()
        if not self.duties:
            # Else the task is kept until they are done: if this process ends before, another one does them.
            self.ledger.task_change = TaskEnded()

    def diverged(self, error: Exception) -> None:
        """Code and log disagree: nothing that this replay asked for counts, and the run waits for a person."""
        self._drop_code()
        if self._log:
            self.state = fold(self.run_id, self._log)
            self.ledger.start_over(self.state)
            for body in self._claim:
                self.record(body)
        self._ending = None
        for body in pause_for(str(error), self.state, self.workflow.version, at_claim=bool(self._log)):
            self.record(body)

    # ---- outcomes and requests from outside

    def settle(self, body: Ended, outcome: Any) -> None:
        """A leaf has its outcome: it is recorded, and the code sees it (later, if it is withheld)."""
        self.record(body)
        if self._saga is None:
            self._code.deliver(body.leaf, outcome, self.state.updated_at)
        else:
            self._saga.go_on()

    def unpause(self, resumed: e.Resumed) -> None:
        self.record(resumed)
        self._code.resumed_at = self.state.updated_at
        if self._code.begun:  # else it did not begin yet in this process: `resume` replays it
            self._code.go_on()
            self.leaves.take_up()
            if self._saga is not None:
                self._saga.go_on()

    def cancel(self, requested: e.CancelRequested) -> None:
        self.record(requested)
        self._code.deliver(None, None, self.state.updated_at)

    def take(self, messages: Sequence[Message]) -> None:
        """New messages came for this run."""
        if self.detached or (self.state.pause is not None and not self._code.begun):
            # Paused, and on its way out without its code: left unread, they make the task due again at its release.
            return
        self.mailbox.take(messages)
        self.flush()
        self.look_at_rest()

    # ---- commits, and the end of this incarnation

    def flush(self) -> None:
        if self._opening:
            return  # all that taking the run over leads to is one commit
        self.ledger.seen = self.mailbox.seen
        self.ledger.flush()

    def _committed(self) -> None:
        if self.detached:
            return
        if self.ended and self.ledger.idle:
            self.detach()
            self.host.ended(self)
        else:
            self.look_at_rest()

    def _lost(self) -> None:
        self.detach()
        self.host.lost(self)

    def look_at_rest(self) -> None:
        """Tells the runner when nothing executes and only a time or a message can move the run."""
        if (self.state.status in _AT_REST or self.stopping) and not self.detached and self.settled:
            self.host.rested(self)

    def interrupt(self, signal: str) -> bool:
        """Graceful stop. True: nothing executes and no event is needed, the runner may release the run."""
        if self.detached:
            return True
        if not self.settled:
            return False
        if self.state.status in _AT_REST:
            return True
        if self.state.status is not Status.INTERRUPTED:
            self.ledger.task_change = Released(self.host.clock.now(), self.mailbox.seen, cause="interrupted")
            self.record(e.Interrupted(signal=signal, runner=self.host.id))
            self.after_commit(self._lost)
            self.flush()
        return False

    def detach(self) -> None:
        """This incarnation no longer speaks for the run."""
        self.detached = True
        self.ledger.close()
        self._drop_code()
