"""Time mutants: planted bugs of clocks, waits, attempts, and of how often something is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from buoy.core.diagnosis import crash_loops
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.lifecycle import check_move
from buoy.core.log.pause import Pause
from buoy.engine.authoring.declaration import Retry
from buoy.engine.run import leaves as leaves_module
from buoy.engine.run import opening
from buoy.engine.run.leaves import Leaves
from buoy.engine.run.ledger import Ledger
from buoy.engine.services.timers import Timer, Timers
from buoy.recovery.sweep import resume_paused as versions_module
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from simulator.world import World


class BeginWaitAgain(Mutant):
    """A wait begins again when another process takes it over."""

    name = "timer-starts-over"
    rules = ("waits end in time",)
    enough = 60

    def install(self, world: World) -> None:
        def start(leaves: Leaves, leaf: Leaf, attempt: int) -> None:
            waited_s = leaves._execution.ledger.now() - leaf.since
            if leaf.due_at is not None and leaf.kind != "step" and waited_s > 0.5:
                leaf = replace(leaf, due_at=leaf.due_at + waited_s)
            real(leaves, leaf, attempt)

        real = self.patch(Leaves, "_start", start)


class ClockBack(Mutant):
    """Events carry the time of their writer's clock, even if it is behind the log."""

    name = "ledger-clock-back"
    rules = ("times never go back",)
    enough = 60

    def install(self, world: World) -> None:
        def record(ledger: Ledger, body: e.Body) -> None:
            state, buffer = ledger.state, ledger._buffer
            check_move(state.status, type(body))
            buffer.append(state.append(body, ledger._clock.now(), None if buffer else ledger._ids.nonce()))

        self.patch(Ledger, "record", record)


class AlarmEarly(Mutant):
    """A waiting leaf is woken a little before its time."""

    name = "alarm-early"
    rules = ("nothing fires before its time",)
    enough = 10

    def install(self, world: World) -> None:
        def set_early(timers: Timers, due_at: float, callback: Callable[[], None]) -> Timer:
            return real(timers, due_at - 0.2, callback)  # type: ignore[no-any-return]

        real = self.patch(Timers, "set", set_early)


class NoBackoff(Mutant):
    """A failed attempt is repeated at once."""

    name = "no-backoff"
    rules = ("attempts wait their back-off",)
    enough = 5

    def install(self, world: World) -> None:
        self.patch(Retry, "delay_s", lambda retry, attempt: 0.0)


class ResetAttempts(Mutant):
    """The third attempt of a step counts as the second one, once: with more of it the step would never give up."""

    name = "attempt-reset"
    rules = ("attempts are counted",)
    enough = 10

    def install(self, world: World) -> None:
        reset: set[str] = set()

        def next_attempt(leaf: Leaf, args: msgspec.Raw, key: str) -> e.StepStarted | e.ModuleStarted:
            started: e.StepStarted | e.ModuleStarted = real(leaf, args, key)
            if started.attempt != 3 or key in reset:
                return started
            reset.add(key)
            return replace(started, attempt=2)

        real = self.patch(leaves_module, "_next_attempt", next_attempt)


class TryAgain(Mutant):
    """Code that did not fit is tried again at each look."""

    name = "same-version-again"
    rules = ("each version gets one try",)
    enough = 150
    test = "tests/engine/test_migration.py::test_versions_that_do_not_fit_do_not_take_turns"

    def install(self, world: World) -> None:
        def worth_retrying(pause: Pause | None, bound: str, version: str) -> bool:
            return pause is not None and pause.reason == "version"

        self.patch(opening, "worth_retrying", worth_retrying)
        self.patch(versions_module, "worth_retrying", worth_retrying)


class ForgetProgress(Mutant):
    """Crashes are counted over the whole life of a run, however far it got between them."""

    name = "progress-not-counted"
    rules = ("only what kills is set apart",)
    enough = 60
    test = "tests/core/test_poison.py::test_progress_begins_the_count_anew"

    def install(self, world: World) -> None:
        def ended(count: crash_loops._Count, leaf: LeafId, *, completed: bool) -> None:
            real(count, leaf, completed=False)

        real = self.patch(crash_loops._Count, "_ended", ended)


class NeverPoison(Mutant):
    """A run that ends its processes is driven again and again."""

    name = "never-set-apart"
    rules = ("what kills is set apart",)
    enough = 150

    def install(self, world: World) -> None:
        self.patch(crash_loops.Crashes, "poison", property(lambda found: False))


TIME_MUTANTS: tuple[type[Mutant], ...] = (
    BeginWaitAgain,
    ClockBack,
    AlarmEarly,
    NoBackoff,
    ResetAttempts,
    TryAgain,
    ForgetProgress,
    NeverPoison,
)
