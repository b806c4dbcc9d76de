"""Saga mutants: planted bugs of undoing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.transitions import compensation_leaf
from buoy.engine.authoring.definitions import Step
from buoy.engine.run import saga
from buoy.engine.run.execution import Execution
from buoy.engine.run.saga import Compensable, Saga
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class KeyByAttempt(Mutant):
    """Each attempt to undo a step has a key of its own."""

    name = "undo-key-by-attempt"
    rules = ("keys tell effects apart",)
    enough = 60

    def install(self, world: World) -> None:
        def key(saga: Saga, leaf: LeafId) -> str:
            undone = saga._execution.state.leaves.get(compensation_leaf(leaf))
            attempt = 1 if undone is None else undone.attempt + (undone.phase == "retrying")
            return real(saga, leaf) if attempt == 1 else f"{real(saga, leaf)}/{attempt}"

        real = self.patch(Saga, "_key", key)


class WithoutResult(Mutant):
    """A compensation does not get the result of its step."""

    name = "undo-without-result"
    rules = ("only what raises fails", "what is undone is what was done")
    enough = 60

    def install(self, world: World) -> None:
        def arguments(undo: Step[..., Any], done: Compensable) -> msgspec.Raw:
            return real(undo, msgspec.structs.replace(done, result=e.NULL))  # type: ignore[no-any-return]

        real = self.patch(saga, "_arguments", arguments)


class GiveUpEffects(Mutant):
    """A step that can be undone is given up while it executes, as any other."""

    name = "give-up-effects"
    rules = ("what can be undone comes to its end",)
    enough = 150

    def install(self, world: World) -> None:
        def cancel(execution: Execution, leaf: LeafId) -> None:
            known = execution.leaves.compensable
            execution.leaves.compensable = {}
            try:
                real(execution, leaf)
            finally:
                execution.leaves.compensable = known

        real = self.patch(Execution, "cancel_leaf", cancel)


SAGA_MUTANTS: tuple[type[Mutant], ...] = (KeyByAttempt, WithoutResult, GiveUpEffects)
