"""Graph mutants: planted bugs of which steps of a spec may start."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from buoy.engine.spec.ready_set import Frontier, Mark
from buoy.errors import StepFailed
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class AnyNeedIsEnough(Mutant):
    """A step of a spec starts when the first of the steps that it needs is completed."""

    name = "any-need-is-enough"
    rules = ("specs follow their graph",)
    enough = 100

    def install(self, world: World) -> None:
        def freed(frontier: Frontier, node: int) -> deque[int]:
            real(frontier, node)
            after = frontier._plan.after[node]
            return deque(each for each in after if frontier._marks[each] == Mark.WAITING)

        real = self.patch(Frontier, "_freed", freed)


class FailureStopsAll(Mutant):
    """After the failure of one step of a spec no other begins, also none that does not need it."""

    name = "failure-stops-all"
    rules = ("specs follow their graph",)
    enough = 100

    def install(self, world: World) -> None:
        def fail(frontier: Frontier, node: int, error: StepFailed) -> None:
            real(frontier, node, error)
            for each, mark in enumerate(frontier._marks):
                if mark in (Mark.WAITING, Mark.READY):
                    frontier._marks[each] = Mark.UPSTREAM_FAILED
                    frontier._unsettled -= 1

        real = self.patch(Frontier, "fail", fail)


GRAPH_MUTANTS: tuple[type[Mutant], ...] = (AnyNeedIsEnough, FailureStopsAll)
