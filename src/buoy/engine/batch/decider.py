"""The decider of a batch run: offers ready jobs as lots, and continues with what the lots report.

Invariants: the owner executes no command. A lot and the offers of its jobs are one commit, and the lot is created after
it. A result counts only if its job is open and was offered in that same lot. A job that failed finally stays open, and
everything that does not need it continues. A job that was stopped is offered again only when nothing of it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from buoy.core.batch.graph import cancelled_with
from buoy.core.batch.lots import EndedJobs, JobEnd, JobsMessage, ResetJobs, StopJobs, is_lot, lot_leaf, lot_number
from buoy.core.ids import LeafId
from buoy.core.limits import JOBS_OFFERED_MAX
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.spec.plan import SpecPlan
from buoy.engine.authoring.failures import step_failed
from buoy.engine.batch.offered_jobs import OfferedJobs
from buoy.engine.batch.offers import Offers
from buoy.engine.batch.protocol import JobExecution, step_of
from buoy.engine.batch.reset_scope import job_leaf, nodes_of, run_again, why_it_rests
from buoy.engine.batch.stopped_jobs import StoppedJobs
from buoy.engine.spec.decider import SpecDecider
from buoy.engine.spec.ready_set import Mark, Slot
from buoy.engine.spec.runtime import SpecKit
from buoy.errors import Diverged, RunFailed


class BatchDecider(SpecDecider):
    """One batch run."""

    _execution: JobExecution

    def __init__(self, execution: JobExecution, plan: SpecPlan, kit: SpecKit) -> None:
        super().__init__(execution, plan, kit, slots=JOBS_OFFERED_MAX)
        self._offers = Offers(execution, plan, self._walk.frontier)
        self._offered = OfferedJobs()
        self._lots: dict[LeafId, e.ChildStarted] = {}
        self._stops = StoppedJobs(self._lots)
        self._leaf = partial(job_leaf, plan)

    def detach(self) -> None:
        super().detach()
        self._offers.cancel_timer()

    # ---- what is ready

    def _go(self) -> None:
        execution, frontier = self._execution, self._walk.frontier
        if execution.delivery_paused and not execution.replaying:
            execution.has_undelivered = True
            return
        self._offers.cancel_timer()
        # At the bound, the few jobs that one message makes room for wait until they fill a lot.
        more, wave, ready = JOBS_OFFERED_MAX - len(self._offered) >= self._offers.size, self._offers.wave, list[int]()
        while not self._ended and len(ready) < wave and (node := frontier.next(commands=more)) is not None:
            if self._offers.is_job(node):
                frontier.take(node)
                frontier.enter(Slot.COMMAND)
                ready.append(node)
            else:
                self._walk.advance(self._walk.take(node))
        for node, error in self._offers.make(ready, self._note_lot):
            self._offered.put(node, 0)
            self._hold(node, error)
        if len(ready) == wave:
            self._offers.later(self._go)
        elif not self._ended and frontier.done and not self._stops.open_lots:
            self._ended = True
            self._end()
        elif not self._ended and not execution.replaying:
            self._rest()

    def _note_lot(self, started: e.ChildStarted, number: int, nodes: Sequence[int]) -> None:
        self._lots[started.leaf] = started
        for node in nodes:
            self._offered.put(node, number)
        execution = self._execution
        execution.after_commit(partial(execution.children.start, started, None))

    def _rest(self) -> None:
        """Rests when nothing is under way and jobs that failed keep the others waiting."""
        state = self._execution.state
        if self._offered or self._lots or self._walk.active or state.pause is not None:
            return
        why = why_it_rests(state)
        if why is not None:
            self._execution.record(e.Paused(reason="jobs", detail=why))

    def resume_code(self) -> None:
        """After the commit: a message that ended the pause has its effect before the run may rest again."""
        self._execution.after_commit(self._go)

    # ---- what lots report

    def deliver(self, leaf: LeafId, outcome: Any, at: float) -> None:
        if not is_lot(leaf):
            super().deliver(leaf, outcome, at)
        elif not self._ended:
            # A lot that is cancelled was so by the end of its run, which was brought back since.
            self._lot_over(leaf, outcome if isinstance(outcome, RunFailed) else None)
            self._go()

    def _lot_over(self, leaf: LeafId, failure: Exception | None) -> None:
        """Offers jobs again that the lot did not report. If the lot itself failed, they failed with it."""
        self._lots.pop(leaf, None)
        for node in self._offered.members(lot_number(leaf)):
            if failure is not None:
                text = f"its lot ended without it: {failure}"
                self._hold(node, e.ErrorInfo(type="LotFailed", message=text, kind="unknown"))
            else:
                self._free(node)
        for node in self._stops.lot_over(lot_number(leaf)):
            self._walk.frontier.again(node)

    def _free(self, node: int) -> None:
        """A job that no runner has started: it is offered again."""
        self._leave(node)
        self._walk.frontier.again(node)

    def receive(self, number: int, body: JobsMessage, by: str | None) -> None:
        """A message about jobs."""
        match body:
            case EndedJobs():
                here = {self._plan.index[step_of(end.leaf)]: end for end in body.ends if self._has(body.lot, end.leaf)}
                returned = tuple(end.leaf for node, end in here.items() if self._offered.frees(node, end))
                stopped = tuple(end.leaf for end in body.ends if self._was_stopped(body.lot, end.leaf))
                ended = e.JobsEnded(lot=body.lot, message=number, returned=returned, stopped=stopped)
                self._execution.record(ended)
                self._left(stopped)
                for end in body.ends:
                    self._job_ended(body.lot, end)
            case ResetJobs():
                self._reset(number, body, by)
            case StopJobs():
                self._stop(number, body, by)
        self._go()

    def _has(self, lot: str, leaf: LeafId) -> bool:
        node, state = self._plan.index.get(step_of(leaf)), self._execution.state
        there = None if node is None or node not in self._offered else state.open.get(leaf)
        open_here = there is not None and there.phase == "open"
        return open_here and lot == state.child_id(lot_leaf(self._offered[self._plan.index[step_of(leaf)]]))

    def _was_stopped(self, lot: str, leaf: LeafId) -> bool:
        number = self._stops.lot_of(self._plan.index.get(step_of(leaf), -1))
        return number is not None and lot == self._execution.state.child_id(lot_leaf(number))

    def _left(self, leaves: Sequence[LeafId]) -> None:
        for node in nodes_of(self._plan, leaves):
            if self._stops.left(node):
                self._walk.frontier.again(node)

    def _job_ended(self, lot: str, end: JobEnd) -> None:
        if not self._has(lot, end.leaf):
            return  # known already, or of a lot that was given up
        execution, node = self._execution, self._plan.index[step_of(end.leaf)]
        if self._offered.frees(node, end):
            self._free(node)
        elif end.error is None:
            execution.record(e.StepCompleted(end.leaf, end.result, end.attempt))
            self._completed(node, end.result)
        elif self._plan.spec.on_failure == "fail":
            failed = e.StepFailed(leaf=end.leaf, error=end.error, attempt=end.attempt)
            execution.record(failed)
            self._failed(node, failed)
        else:
            self._hold(node, end.error, end.attempt)

    def _completed(self, node: int, result: msgspec.Raw) -> None:
        self._leave(node)
        value = codec.decode(result, Any, "the result of a job")
        self._offers.measure(node, value)
        self._walk.frontier.complete(node, value)

    def _failed(self, node: int, failed: e.StepFailed) -> None:
        self._leave(node)
        self._walk.frontier.fail(node, step_failed(failed, None))

    def _given_up(self, node: int, leaf: LeafId) -> None:
        self._leave(node)
        self._stop_node(node, disabled=self._execution.state.stopped.get(leaf) == "disabled")

    def _hold(self, node: int, error: e.ErrorInfo, attempt: int | None = None) -> None:
        leaf = self._leaf(node)
        attempt = self._execution.state.open[leaf].attempt if attempt is None else attempt
        self._leave(node)
        self._execution.record(e.JobHeld(leaf=leaf, error=error, attempt=attempt))
        waiting = cancelled_with(self._plan, node)
        names = [self._leaf(each) for each in waiting if self._walk.frontier.mark(each) in (Mark.WAITING, Mark.READY)]
        if names:
            stopped = e.JobsStopped(leaves=tuple(names), cause="dependency", reason=f"{leaf} failed")
            self._execution.record(stopped)
            self._stopped(stopped)

    def _leave(self, node: int) -> None:
        if self._offered.remove(node):
            self._walk.frontier.leave(Slot.COMMAND)

    # ---- what a person asks for

    def _reset(self, number: int, body: ResetJobs, by: str | None) -> None:
        nodes = nodes_of(self._plan, body.leaves)
        wanted = run_again(self._plan, self._execution.state, nodes)
        # Their lots have the old limits. These jobs were lost, and their runner is gone.
        changed = self._offered.by_lot(node for node in nodes if self._leaf(node) in body.limits)
        for lot, members in changed.items():
            wanted.update(map(self._leaf, members))
            if self._take_back(lot, members, "its limits change", number):
                self._lots.pop(lot_leaf(lot), None)
                self._execution.cancel_leaf(lot_leaf(lot))
        reset = body.event(sorted(wanted), number, by)
        self._execution.record(reset)
        self._were_reset(reset)

    def _were_reset(self, reset: e.JobsReset) -> None:
        for node in nodes_of(self._plan, reset.leaves):
            if not self._stops.wait(node):
                self._walk.frontier.again(node)

    def _stop(self, number: int, body: StopJobs, by: str | None) -> None:
        cause = e.JobsStopped(leaves=body.leaves, disabled=body.disable, reason=body.reason, message=number, by=by)
        in_lots = self._offered.by_lot(nodes_of(self._plan, body.leaves))
        self._execution.record(cause)
        self._stopped(cause)
        for lot, nodes in in_lots.items():
            if self._take_back(lot, nodes, body.reason, number):
                self._end_lot(lot_leaf(lot))

    def _end_lot(self, lot: LeafId) -> None:
        """A lot that has no job any more. Its end is waited for."""
        self._execution.after_commit(partial(self._execution.children.give_up, lot))

    def _take_back(self, lot: int, nodes: Sequence[int], reason: str | None, number: int) -> bool:
        """Cancels jobs of a lot here at once: it may be that no runner ever claims it. Whether none is left in it."""
        for node in nodes:
            self._execution.record(e.LeafCancelled(leaf=self._leaf(node)))
            self._given_up(node, self._leaf(node))
        if self._offered.members(lot):
            leaves = tuple(self._leaf(node) for node in nodes)
            self._offers.stop(lot, StopJobs(leaves, reason=reason), number)
            return False
        return True

    def _stopped(self, stopped: e.JobsStopped) -> None:
        for node in nodes_of(self._plan, stopped.leaves):
            offered = node in self._offered
            self._stops.stop(node, self._offered[node] if offered else None)
            if not offered:
                self._stop_node(node, disabled=stopped.disabled)

    def _stop_node(self, node: int, *, disabled: bool) -> None:
        if disabled:
            self._walk.frontier.skip(node)
        else:
            self._walk.frontier.stop(node)

    # ---- replay

    async def replay(self, events: Sequence[e.Event], at: float) -> None:
        await super().replay(events, at)
        for started in self._lots.values():
            # Create-if-absent: the owner may have died before.
            self._execution.after_commit(partial(self._execution.children.start, started, None))
        for lot in self._stops.open_lots:
            if not self._offered.members(lot):
                self._end_lot(lot_leaf(lot))

    def _replay_event(self, event: e.Event) -> None:
        body = event.body
        match body:
            case e.ChildStarted(workflow=e.LOT_WORKFLOW):
                self._lots[body.leaf] = body
                self._execution.history.asked.add(body.leaf)
            case e.ChildFinished() | e.LeafCancelled() if is_lot(body.leaf):
                self._lot_over(body.leaf, None)
            case e.BranchCreated():
                self._offered.branched()
            case e.JobOffered():
                self._replay_offer(event, body)
            case e.JobsEnded():
                self._left(body.stopped)
                for leaf in body.returned:
                    self._free(self._plan.index[step_of(leaf)])
            case e.JobHeld():
                self._leave(self._plan.index[step_of(body.leaf)])
                self._walk.frontier.take(self._plan.index[step_of(body.leaf)])
            case e.JobsReset():
                self._were_reset(body)
            case e.JobsStopped():
                self._stopped(body)
            case e.LeafCancelled() if step_of(body.leaf) in self._plan.index:
                self._given_up(self._plan.index[step_of(body.leaf)], body.leaf)
            case e.StepCompleted() if self._plan.index.get(step_of(body.leaf)) in self._offered:
                self._completed(self._plan.index[step_of(body.leaf)], body.result)
            case e.StepFailed() if self._plan.index.get(step_of(body.leaf)) in self._offered:
                self._failed(self._plan.index[step_of(body.leaf)], body)
            case _:
                super()._replay_event(event)

    def _replay_offer(self, event: e.Event, body: e.JobOffered) -> None:
        node = self._plan.index.get(body.name)
        if node is not None and self._stops.left(node):
            self._walk.frontier.again(node)  # an earlier release did not wait for the end of its lot
        if node is None or (node not in self._offered and not self._walk.frontier.ready(node)):
            raise Diverged(
                f"event {event.seq} offers {body.leaf}, which the spec does not have ready",
                log_leaf=body.leaf,
                seq=event.seq,
            )
        if node not in self._offered:
            self._walk.frontier.take(node)
            self._walk.frontier.enter(Slot.COMMAND)
        self._offered.put(node, body.lot)
