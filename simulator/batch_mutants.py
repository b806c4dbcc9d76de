"""Planted bugs of batch runs, which `batch_world` must notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from buoy.core.batch.lots import JobEnd
from buoy.core.log import events as e
from buoy.engine.batch.decider import BatchDecider
from buoy.engine.batch.lot_decider import LotDecider
from buoy.engine.batch.offers import Offers
from buoy.engine.batch.protocol import step_of
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class DeafOwner(Mutant):
    """The owner does not hear of every other end, and offers those jobs again."""

    name = "deaf-owner"
    rules = ("no completed job runs again",)

    def install(self, world: World) -> None:
        def ended(self: BatchDecider, lot: str, end: JobEnd) -> None:
            if self._plan.index[step_of(end.leaf)] % 2:
                real(self, lot, end)

        real = self.patch(BatchDecider, "_job_ended", ended)


class ForgottenEnds(Mutant):
    """A runner that takes a lot over forgets which of its jobs have completed."""

    name = "forgotten-ends"
    rules = ("no job is lost",)

    def install(self, world: World) -> None:
        def replayed(self: LotDecider, event: e.Event) -> None:
            if not isinstance(event.body, e.StepCompleted):
                real(self, event)

        real = self.patch(LotDecider, "_replay_event", replayed)


class SameAttempt(Mutant):
    """A job that was reset runs under the attempt that has failed."""

    name = "same-attempt"
    rules = ("every reset is honoured once", "no job is lost")

    def install(self, world: World) -> None:
        def attempt(self: Offers, leaf: Any) -> int:
            known = self._execution.state.leaves.get(leaf)
            return 1 if known is None else known.attempt

        self.patch(Offers, "_attempt", attempt)


BATCH_MUTANTS = (DeafOwner, ForgottenEnds, SameAttempt)
