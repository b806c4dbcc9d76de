"""Family mutants: planted bugs between runs and their children, of undoing, and of what comes in which order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from buoy.core.ids import LeafId, RunId, child_run_id
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import State
from buoy.core.log.transitions import compensation_leaf
from buoy.engine.run import execution as execution_module
from buoy.engine.run import owed as duties_module
from buoy.engine.run.children import Children
from buoy.engine.run.execution import Execution
from buoy.engine.run.mailbox import Mailbox
from buoy.engine.run.owed import CreateRun, Owed, SendMessage
from buoy.engine.run.saga import Saga
from buoy.ports.records import Ended
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class SignalsLastFirst(Mutant):
    """Of several signals that wait to be consumed the last one comes first."""

    name = "signals-last-first"
    rules = ("signals come in their order",)
    enough = 60

    def install(self, world: World) -> None:
        def give_signal(mailbox: Mailbox, leaf: LeafId, name: str) -> bool:
            unread = mailbox._signals.get(name)
            if unread:
                unread.rotate(1)
            return real(mailbox, leaf, name)  # type: ignore[no-any-return]

        real = self.patch(Mailbox, "give_signal", give_signal)


class _OtherDuties(Mutant):
    """An end owes less to others than it should."""

    def owes(self, duty: Owed) -> bool:
        raise NotImplementedError

    def install(self, world: World) -> None:
        def duties_of(state: State, ending: e.Ending, done: object = ()) -> list[Owed]:
            return [duty for duty in real(state, ending, done) if self.owes(duty)]

        real = self.patch(duties_module, "duties_of", duties_of)
        self.patch(execution_module, "duties_of", duties_of)


class ChildrenGoOn(_OtherDuties):
    """The child of a run that fails is not asked to cancel."""

    name = "children-go-on"
    rules = ("children of ended runs are notified", "runs end or wait for something real")
    enough = 40

    def owes(self, duty: Owed) -> bool:
        return not isinstance(duty, SendMessage) or duty.message.kind != "cancel"


class ForgetDetached(_OtherDuties):
    """A detached child that was not yet there when its parent ended is forgotten with the process."""

    name = "detached-child-forgotten"
    rules = ("what was promised is started",)
    enough = 150

    def owes(self, duty: Owed) -> bool:
        # The id of a successor ends with its number in the chain.
        return not isinstance(duty, CreateRun) or re.search(r"\.c\d+$", duty.run_id) is not None


class ForgetSuccessor(_OtherDuties):
    """A run ends to continue as another one, and the other one is never created."""

    name = "successor-forgotten"
    rules = ("what was promised is started", "the result is the expected one")
    enough = 60

    def owes(self, duty: Owed) -> bool:
        return not isinstance(duty, CreateRun) or re.search(r"\.c\d+$", duty.run_id) is None


class SagaByStart(Mutant):
    """Parallel steps are undone in the order of their starts, not of their ends."""

    name = "saga-by-start"
    rules = ("effects are undone in reverse",)
    enough = 40

    def install(self, world: World) -> None:
        def following(saga: Saga) -> LeafId | None:
            state, left = saga._execution.state, list[Leaf]()
            for leaf_id in saga._execution.leaves.compensable:
                leaf, undone = state.leaves.get(leaf_id), state.leaves.get(compensation_leaf(leaf_id))
                if (
                    leaf is not None
                    and leaf.phase == "completed"
                    and (undone is None or undone.phase in ("open", "retrying"))
                ):
                    left.append(leaf)
            return max(left, key=lambda each: each.started_seq).id if left else None

        self.patch(Saga, "_next", following)


class GiveUpOnce(Mutant):
    """A child that was given up just before a crash is not told afterwards."""

    name = "give-up-once"
    rules = ("children of ended runs are notified", "runs end or wait for something real")
    enough = 150

    def install(self, world: World) -> None:
        self.patch(Children, "catch_up", lambda kin: None)


class SameChild(Mutant):
    """A child that is called back is the run that it was."""

    name = "child-id-no-epoch"
    rules = ("what is called back is new",)
    enough = 40

    def install(self, world: World) -> None:
        def child_id(state: State, leaf: LeafId) -> RunId:
            return child_run_id(state.run_id, state.names.identity(leaf), 0)

        self.patch(State, "child_id", child_id)


class EndFirst(Mutant):
    """A run gives its task up with its last commit, before it has done what it owes to others."""

    name = "task-ends-before-duties"
    rules = ("runs end or wait for something real", "what was promised is started", "runs end when all is answered")
    enough = 100

    def install(self, world: World) -> None:
        def close(run: Execution, ending: e.Ending) -> None:
            real(run, ending)
            run.ledger.task_change = Ended()

        real = self.patch(Execution, "close", close)


FAMILY_MUTANTS: tuple[type[Mutant], ...] = (
    SignalsLastFirst,
    ChildrenGoOn,
    ForgetDetached,
    ForgetSuccessor,
    SagaByStart,
    GiveUpOnce,
    SameChild,
    EndFirst,
)
