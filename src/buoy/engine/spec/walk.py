"""The walk through a spec's run: asks for the leaves of each step in order, and ends steps when their leaves ended.

    step with one action     step_started  step_completed               leaf `train_1#1`
    step with modules        step_started  (module_started  module_completed)...  step_completed
                             leaves `gather#1`, `gather/fetch#1`, in the order of the modules
    question                 step_started or module_started, interaction_requested, interaction_response, its end
                             leaf `gather/review/ask#1`

Invariant: where a step stands follows from which leaves it has, by name, never from how many.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from buoy.core.ids import LeafId, leaf_id
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.questions import Json
from buoy.core.spec.model import Action
from buoy.core.spec.plan import SpecPlan
from buoy.core.spec.scope import PlanScope
from buoy.engine.authoring.context import Request
from buoy.engine.authoring.failures import message_of
from buoy.engine.code.protocol import RunRecorder
from buoy.engine.spec.ready_set import Frontier, Slot
from buoy.engine.spec.runtime import Prepared, SpecKit
from buoy.errors import NotJson, StepFailed, TooLarge


class Recording(RunRecorder, Protocol):
    """The execution, as the walk sees it: it also takes the ends of groups."""

    def record(self, body: e.Body) -> None: ...


class Active(msgspec.Struct):
    """A step under way."""

    node: int
    leaf: LeafId
    begun: bool = False
    # The leaf that executes or is waited for, and in which lane it counts.
    open: LeafId | None = None
    lane: Slot = Slot.FREE
    # A module that is a group of its own, because it asks; and the answer, until the group is closed.
    asking: LeafId | None = None
    asked: bool = False
    answered: bool = False
    answer: Any = None
    results: dict[str, Json] = {}
    failure: StepFailed | None = None


class Walk:
    """The steps of one run that are under way."""

    def __init__(self, execution: Recording, plan: SpecPlan, kit: SpecKit, slots: int | None = None) -> None:
        self._execution = execution
        self._plan = plan
        self._kit = kit
        self.frontier = Frontier(plan, execution.run_id, kit.slots if slots is None else slots)
        self.active: dict[int, Active] = {}
        self.waits: dict[LeafId, Active] = {}
        # Answers to questions that a branch kept although what asks them is run again.
        self.kept: dict[LeafId, Any] = {}

    def take(self, node: int) -> Active:
        """A step begins."""
        self.frontier.take(node)
        active = self.active[node] = Active(node, leaf_id("", self._plan.steps[node].id, 1))
        return active

    def advance(self, active: Active) -> None:
        """Does whatever comes next in a step of which nothing is open."""
        if active.node not in self.active:
            return
        if not active.begun:
            self.open_step(active)
        if active.open is not None:
            return
        if active.failure is not None:
            self._close(active, active.failure)
            return
        if active.answered and active.asking is not None:
            self._record_end(e.ModuleCompleted(leaf=active.asking, result=codec.encode(active.answer, "the answer")))
            self.close_asking(active, active.answer)
        module = self.next_module(active)
        if module is not None and active.asking is None:
            self.open_module(active, module)
        if active.open is None:
            self._ask_or_close(active, module)

    def _ask_or_close(self, active: Active, module: Action | None) -> None:
        if module is not None or (not self._modules(active) and not active.answered):
            self.ask(active)
            if active.answered:
                self.advance(active)
        else:
            self._close(active, dict(active.results) if self._modules(active) else active.answer)

    def next_module(self, active: Active) -> Action | None:
        """The first module that has no result yet."""
        return next((each for each in self._modules(active) if each.id not in active.results), None)

    def _modules(self, active: Active) -> tuple[Action, ...]:
        return self._plan.steps[active.node].step.modules

    # ---- asking for leaves

    def open_step(self, active: Active) -> None:
        active.begun = True
        planned = self._plan.steps[active.node]
        step = planned.step
        prepared = Prepared() if step.modules else self._prepare(active, step, active.leaf)
        started = e.StepStarted(
            leaf=active.leaf,
            name=planned.id,
            args=prepared.args,
            key=self._key(active.leaf),
            group=prepared.work is None,
        )
        self._open(active, active.leaf, started, prepared, step)

    def open_module(self, active: Active, module: Action) -> None:
        planned = self._plan.steps[active.node]
        leaf = leaf_id(planned.id, module.id, 1)
        prepared = self._prepare(active, module, leaf)
        if prepared.work is None:
            active.asking = leaf
        started = e.ModuleStarted(
            leaf=leaf,
            step=planned.id,
            module=module.id,
            args=prepared.args,
            key=self._key(leaf),
            group=prepared.work is None,
        )
        self._open(active, leaf, started, prepared, module)

    def ask(self, active: Active) -> None:
        """The question of a step, or of the module that comes next."""
        planned = self._plan.steps[active.node]
        module = self.next_module(active)
        leaf = leaf_id(planned.id if module is None else f"{planned.id}/{module.id}", "ask", 1)
        if leaf in self.kept:
            active.answered, active.answer = True, self.kept[leaf]
            return
        question = self._scope(active).question(planned.step if module is None else module)
        asked = e.InteractionRequested(leaf=leaf, question_id=self._key(leaf), question=question)
        active.asked = True
        self._wait(active, leaf, Slot.FREE)
        self._execution.open_leaf(Request(leaf, "ask", asked))

    def _open(
        self,
        active: Active,
        leaf: LeafId,
        started: e.StepStarted | e.ModuleStarted,
        prepared: Prepared,
        action: Action,
    ) -> None:
        if prepared.work is None:
            self._execution.open_leaf(Request(leaf, "group", started))
            return
        self._wait(active, leaf, Slot.COMMAND if action.run is not None else Slot.CALL)
        kind = "step" if isinstance(started, e.StepStarted) else "module"
        self._execution.open_leaf(Request(leaf, kind, started, prepared.work))  # type: ignore[arg-type]

    def _wait(self, active: Active, leaf: LeafId, lane: Slot) -> None:
        active.open, active.lane = leaf, lane
        self.waits[leaf] = active
        self.frontier.enter(lane)

    def _prepare(self, active: Active, action: Action, leaf: LeafId) -> Prepared:
        planned = self._plan.steps[active.node]
        broken = self.frontier.broken.get(active.node)
        if broken is not None:
            return self._kit.refuse(planned.id, broken)
        there = self._execution.history.started.get(leaf)
        recorded = there.args if isinstance(there, e.StepStarted | e.ModuleStarted) else None
        return self._kit.prepare(planned, action, self._scope(active), recorded)

    def _scope(self, active: Active) -> PlanScope:
        return self.frontier.scope(active.node, active.results)

    def _key(self, leaf: LeafId) -> str:
        return self._execution.state.key(leaf)

    # ---- ends

    def settle(self, active: Active, outcome: Any) -> None:
        """The leaf that was waited for has its outcome."""
        leaf, active.open = active.open, None
        self.frontier.leave(active.lane)
        if leaf == active.leaf:
            self.finish(active, outcome)
        elif active.asked:
            active.asked, active.answered, active.answer = False, True, outcome
        elif isinstance(outcome, StepFailed):
            active.failure = outcome
        else:
            module = self.next_module(active)
            assert module is not None
            active.results[module.id] = outcome

    def close_asking(self, active: Active, outcome: Any) -> None:
        """The module that asked has its answer."""
        module = self.next_module(active)
        assert module is not None
        active.results[module.id] = outcome
        active.asking, active.answered, active.answer = None, False, None

    def _close(self, active: Active, outcome: Any) -> None:
        """A group ends with what its leaves came to."""
        name = self._plan.steps[active.node].id
        if not isinstance(outcome, StepFailed):
            try:
                stored = codec.encode(outcome, f"the result of step {name}")
                self._record_end(e.StepCompleted(leaf=active.leaf, result=stored))
                self.finish(active, outcome)
                return
            except (NotJson, TooLarge) as error:
                outcome = StepFailed(str(error), step=active.leaf, type=type(error).__name__)
        info = e.ErrorInfo(type=outcome.type, message=message_of(outcome), retryable=False, kind="permanent")
        self._record_end(e.StepFailed(leaf=active.leaf, error=info))
        self.finish(active, outcome)

    def _record_end(self, body: e.StepCompleted | e.ModuleCompleted | e.StepFailed) -> None:
        """After a crash in the middle of a commit's making the log may have it already."""
        if body.leaf in self._execution.state.open:
            self._execution.record(body)

    def finish(self, active: Active, outcome: Any) -> None:
        """A step is over."""
        del self.active[active.node]
        if isinstance(outcome, StepFailed):
            self.frontier.fail(active.node, outcome)
        else:
            self.frontier.complete(active.node, outcome)
