"""Claim mutants: planted bugs of what a process says when it takes a run, rests, or lets it go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from buoy.core.ids import RunnerId
from buoy.core.log import events as e
from buoy.core.log.append import Appended
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.log.state import State
from buoy.core.log.takeovers import LOST
from buoy.core.remedy.plan import RecoveryPlan
from buoy.engine.client import rewind
from buoy.engine.process import intake, runner, takeover
from buoy.engine.run.execution import Execution
from buoy.ports.host import Clock
from buoy.ports.records import Released, Task, TaskChange, Write
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class SeenTooMuch(Mutant):
    """A runner that lets a run rest calls the next message seen as well."""

    name = "seen-too-much"
    rules = ("only what was sent is called seen",)
    enough = 20

    def install(self, world: World) -> None:
        def release_of(execution: Execution, clock: Clock, *, at_once: bool) -> Released:
            found: Released = real(execution, clock, at_once=at_once)
            return replace(found, seen=found.seen + 1)

        real = self.patch(runner, "release_of", release_of)


class AsleepAfterJump(Mutant):
    """A run that went back waits for a message before it continues."""

    name = "asleep-after-jump"
    rules = ("what rests is due in time",)
    enough = 60

    def install(self, world: World) -> None:
        def write_of(appended: Appended, task: TaskChange | None) -> Write:
            changed = replace(task, due_at=None) if isinstance(task, Released) else task
            write: Write = real(appended, changed)
            return write

        real = self.patch(rewind, "write_of", write_of)


class DeathNotTold(Mutant):
    """Who takes a run from a dead owner claims it as one that was woken."""

    name = "death-not-told"
    rules = ("takeovers are called so",)
    enough = 20

    def install(self, world: World) -> None:
        def told_by_log(task: Task, state: State, log: Sequence[e.Event], runner: RunnerId) -> Task:
            return replace(task, cause="woken") if task.cause == LOST else task

        self.patch(intake, "told_by_log", told_by_log)


class InterruptWhatWaits(Mutant):
    """A stop records an interruption of runs that only wait."""

    name = "interrupt-what-waits"
    rules = ("only what executes is interrupted",)
    enough = 60

    def install(self, world: World) -> None:
        def interrupt(execution: Execution, signal: str) -> bool:
            if execution.at_rest and execution.state.status in RESTING:
                execution.turn(execution._interrupt, signal)
                return False
            return bool(real(execution, signal))

        real = self.patch(Execution, "interrupt", interrupt)


class PolicyForAll(Mutant):
    """A policy is met although the run only waited when its owner died."""

    name = "policy-for-all"
    rules = ("policies are for runs whose owner died",)
    enough = 150

    def install(self, world: World) -> None:
        def by_policy(
            state: State, log: Sequence[e.Event], claim: e.Claimed, policy: str, now: float
        ) -> RecoveryPlan | None:
            before, state.status = state.status, Status.RUNNING
            try:
                found: RecoveryPlan | None = real(state, log, claim, policy, now)
                return found
            finally:
                state.status = before

        real = self.patch(takeover, "_by_policy", by_policy)


CLAIM_MUTANTS: tuple[type[Mutant], ...] = (SeenTooMuch, AsleepAfterJump, DeathNotTold, InterruptWhatWaits, PolicyForAll)
