"""The spec decider: drives a run of a spec as code drives other runs: it asks for leaves and receives their outcomes.

Invariants: a replay starts what the log has as started, and decides nothing before its end. So two runners may differ
in how many steps they run at the same time. A step starts when everything that it needs is completed or skipped. A
failed step blocks its descendants and no other step; the run fails when nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.spec.plan import SpecPlan
from buoy.engine.authoring.context import Started
from buoy.engine.authoring.failures import Failed
from buoy.engine.code.replay import STARTS, Completed, outcome_of, replay_in_slices
from buoy.engine.spec.runtime import SpecKit
from buoy.engine.spec.walk import Active, Recording, Walk
from buoy.errors import BadInput, Cancelled, Diverged


class SpecDecider:
    """One run of a spec."""

    def __init__(self, execution: Recording, plan: SpecPlan, kit: SpecKit, slots: int | None = None) -> None:
        self._execution = execution
        self._plan = plan
        self._walk = Walk(execution, plan, kit, slots)
        self._ended = False

    @property
    def busy(self) -> bool:
        return False

    def begin(self, at: float) -> None:
        self._walk.frontier.begin()
        self._go()

    def deliver(self, leaf: LeafId, outcome: Any, at: float) -> None:
        active = self._walk.waits.pop(leaf, None)
        if active is None or self._ended:
            return
        self._walk.settle(active, outcome)
        self._walk.advance(active)
        self._go()

    def cancel(self, at: float) -> None:
        if self._ended:
            return
        self._ended = True
        for leaf in list(self._walk.waits):
            self._execution.cancel_leaf(leaf)
        self._execution.code_raised(Cancelled(""))

    def resume_code(self) -> None:
        """A spec moves only when something is delivered to it."""

    def detach(self) -> None:
        self._ended = True
        self._walk.waits.clear()

    def check_pending(self) -> None:
        """After a replay: what is waited for must be open in the log."""
        for leaf in self._walk.waits:
            if leaf not in self._execution.state.open:
                text = f"the log has {leaf} as given up, but the spec still waits for it"
                raise Diverged(text, log_leaf=leaf, code_leaf=leaf)

    def _go(self) -> None:
        """Starts what is ready, as far as there is room; ends the run when nothing is left."""
        frontier = self._walk.frontier
        while not self._ended and (node := frontier.next()) is not None:
            self._walk.advance(self._walk.take(node))
        if not self._ended and frontier.done:
            self._ended = True
            self._end()

    def _end(self) -> None:
        try:
            failure = self._walk.frontier.failure()
            if failure is not None:
                self._execution.code_raised(failure)
            else:
                self._execution.code_returned(self._walk.frontier.result())
        except BadInput as error:
            self._execution.code_raised(error)

    # ---- replay

    async def replay(self, events: Sequence[e.Event], at: float) -> None:
        self._walk.frontier.begin()
        await replay_in_slices(events, self._execution.clock, self._replay_some)
        self._execution.history.forget()
        self._catch_up()

    def _catch_up(self) -> None:
        """Does what follows from the events delivered so far."""
        if not self._ended:
            for active in list(self._walk.active.values()):
                self._walk.advance(active)
            self._go()

    def _replay_some(self, events: Sequence[e.Event]) -> None:
        for event in events:
            self._replay_event(event)

    def _replay_event(self, event: e.Event) -> None:
        if self._ended:
            return
        body = event.body
        if isinstance(body, STARTS):
            self._replay_start(event, body)
        elif isinstance(body, Completed | Failed | e.InteractionResponse):
            self._replay_end(event, body)
        elif isinstance(body, e.CancelRequested):
            # It reached a spec that had done all that it could by then; perhaps it had ended.
            self._catch_up()
            self.cancel(event.at)

    def _replay_start(self, event: e.Event, body: Started) -> None:
        leaf, walk = body.leaf, self._walk
        if leaf in walk.waits:
            return  # a further attempt
        active, part = self._active_of(leaf)
        if isinstance(body, e.InteractionRequested) and not self._asks(active, leaf):
            self._execution.history.asked.add(leaf)
            walk.kept[leaf] = None
            return
        if active is None:
            active = self._begin_again(event, leaf)
        if isinstance(body, e.StepStarted):
            walk.open_step(active)
        elif isinstance(body, e.InteractionRequested):
            walk.ask(active)
        else:
            module = walk.next_module(active)
            if module is None or module.id != part:
                raise _differs(event, leaf, "starts", "which is not the module that comes next")
            walk.open_module(active, module)

    def _asks(self, active: Active | None, leaf: LeafId) -> bool:
        """Whether what asks that question has started. Else a branch kept the answer for when it is asked again."""
        owner = leaf.rpartition("/")[0]
        return active is not None and active.begun and owner in (active.leaf[:-2], (active.asking or "")[:-2])

    def _begin_again(self, event: e.Event, leaf: LeafId) -> Active:
        """A step that the log has started."""
        name = _parts(leaf)[0]
        node = self._plan.index.get(name)
        if node is None:
            raise _differs(event, leaf, "starts", f"and the spec has no step {name!r}")
        if not self._walk.frontier.ready(node):
            raise _differs(event, leaf, "starts", "before all that it needs is over")
        return self._walk.take(node)

    def _replay_end(self, event: e.Event, body: Completed | Failed | e.InteractionResponse) -> None:
        outcome = outcome_of(body, Any, None)
        if body.leaf in self._walk.kept:
            self._walk.kept[body.leaf] = outcome
            return
        waiting = self._walk.waits.pop(body.leaf, None)
        if waiting is not None:
            self._walk.settle(waiting, outcome)
            return
        active, _ = self._active_of(body.leaf)
        if active is not None and active.leaf == body.leaf:
            # A group failed with what one of its leaves failed with.
            self._walk.finish(active, active.failure if isinstance(body, Failed) and active.failure else outcome)
        elif active is not None and active.asking == body.leaf:
            self._walk.close_asking(active, outcome)
        else:
            raise _differs(event, body.leaf, "is the outcome of", "which the spec did not ask for")

    def _active_of(self, leaf: LeafId) -> tuple[Active | None, str]:
        """The step under way that a leaf belongs to, and the leaf's place in it."""
        name, part = _parts(leaf)
        return self._walk.active.get(self._plan.index.get(name, -1)), part


def _differs(event: e.Event, leaf: LeafId, verb: str, text: str) -> Diverged:
    return Diverged(f"event {event.seq} {verb} {leaf}, {text}", log_leaf=leaf, seq=event.seq)


def _parts(leaf: LeafId) -> tuple[str, str]:
    """Step and module of a leaf; no module for the step itself."""
    step, _, rest = leaf.rpartition("#")[0].partition("/")
    return step, rest
