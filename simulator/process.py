"""Processes of the simulation: what is the same for workers and senders. A process lives, freezes and dies as a whole.

Invariant: a process that died by SIGKILL, or exited, runs nothing any more, and its lock is free. One that is frozen
still has its lock. A process that comes back has a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from buoy.engine.authoring.attempt import info
from buoy.ports.store import Store
from simulator.faults import Gate
from simulator.host import SimClock, SimIds
from simulator.observed import observed
from simulator.witness import BodyEvent

if TYPE_CHECKING:
    from simulator.world import World

# Errors that no code raises on purpose.
_UNFORESEEN = frozenset(
    {
        "AssertionError",
        "AttributeError",
        "IndexError",
        "KeyError",
        "NameError",
        "NotImplementedError",
        "RuntimeError",
        "TypeError",
        "ValueError",
    }
)

_HERE: ContextVar[Process] = ContextVar("simulated_process")


def here() -> Process:
    """The process that the caller's code runs in."""
    return _HERE.get()


def blast(name: str, times_max: int) -> None:
    """Workflow code that ends its process, so many times at most. One that is only replayed by a check does not."""
    process = _HERE.get(None)
    if process is not None and process.dies(name, times_max):
        run = str(info().run_id)
        process.world.code_deaths[run] = process.world.code_deaths.get(run, 0) + 1


# Records of runners that are gone: so few that runners retire in every story.
GONE_KEPT = 1


class Process:
    """One simulated process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.loop = world.kernel.make_loop(name, self.trouble)
        self.rng = Random(f"{world.seed} {name} itself")
        self.clock = SimClock(world.kernel, world.wall_of(name))
        self.ids = SimIds(name)
        self.gone = False
        # The same, and the store has said that it is so.
        self.buried = False
        # When the store took its last beat.
        self.beaten_at = world.kernel.time
        # Things that it still wants to say to runs: until then nothing is at rest.
        self.busy = 0
        # How often it went through its gate, by the call of the store.
        self.passes: dict[str, int] = {}

    @property
    def alive(self) -> bool:
        return not self.loop.dead

    @property
    def was_told(self) -> bool:
        """Whether it knows that it was declared gone."""
        return False

    def silent_s(self, by: Process) -> float | None:
        """How long its heartbeat has been silent. None: it is dead, or `by` does not judge by silence."""
        if self.world.plan.single_host or not self.alive or self is by or by.name == "operator":
            return None
        return self.world.kernel.time - self.beaten_at

    def drives(self, run_id: str) -> bool:
        """Whether it would continue this run."""
        return False

    def creates(self, run_id: str) -> bool:
        """Whether it tries to make this run, and does not know yet whether the run was there before."""
        return False

    def tell(self, what: str) -> None:
        self.world.story.tell(self.world.kernel.time, self.name, what)

    def trouble(self, what: str) -> None:
        """Something in this process failed in a way that the engine never foresaw."""
        self.tell(what)
        self.world.witness.broken("unforeseen error", f"{self.name}: {what}")

    def look_at(self, last_error: str | None) -> None:
        """The engine's loops survive every error. An unforeseen error is a finding all the same."""
        if last_error is not None and last_error.partition(":")[0] in _UNFORESEEN:
            self.trouble(last_error)

    def open_store(self, *, beats: bool = False) -> Store:
        gate = Gate(self, self.world.faults, f"{self.name}+" if beats else self.name, beats=beats)
        return observed(self.world.storage.open(gate, self.clock), self, gate)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begins a task of this process."""
        context = copy_context()
        context.run(_HERE.set, self)
        self.world.kernel.spawn(self.loop, context.run(work), context)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """It starts a run or sends something inside."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    # ---- what happens to it

    def crash(self, when: str) -> None:
        if self.alive:
            self.tell(f"CRASH {when}")
            self._end()

    def exit(self) -> None:
        if self.alive:
            self.tell("exits")
            self._end()

    def _end(self) -> None:
        self.loop.kill()
        self.world.ended(self)

    def freeze(self, for_s: float) -> bool:
        """Whether it moved before."""
        if not self.loop.runs:
            return False
        self.tell(f"FREEZES for {for_s:.1f} s")
        self.loop.frozen = True
        self.world.kernel.at(self.world.kernel.time + for_s, self.thaw)
        return True

    def thaw(self) -> None:
        if self.alive and self.loop.frozen:
            self.tell("continues")
            self.loop.frozen = False
            self.loop.ripen(self.world.kernel.time)

    def dies(self, leaf: str, times_max: int) -> bool:
        """Whether what runs here has ended its process. While things go wrong, and not more often than that."""
        deaths, which = self.world.deaths, f"{info().run_id}/{leaf}"
        if not self.world.faults.on or deaths.get(which, 0) >= times_max:
            return False
        deaths[which] = deaths.get(which, 0) + 1
        self.crash(f"in {which}")
        self.world.faults.count("crash in a body")
        return True

    # ---- bodies of steps

    def undoes(self, id: str, result: str) -> None:
        """A compensation is called with the arguments of its step, and with the result."""
        if result != id:
            text = f"{self.name} undoes {info().leaf} of {info().run_id} with the result {result!r}, which was {id!r}"
            self.world.witness.broken("what is undone is what was done", text)

    @contextmanager
    def body(self) -> Iterator[int]:
        """A step's body runs inside. Gives the number of its attempt."""
        about = info()
        assert about.leaf is not None and about.attempt is not None and about.key is not None
        world = self.world

        def seen(what: Any) -> BodyEvent:
            return BodyEvent(
                world.kernel.time, what, about.run_id, str(about.leaf), about.attempt or 0, str(about.key), self.name,
                self.gone,
            )  # fmt: skip

        self.tell(f"{about.run_id}: body of {about.leaf} begins, attempt {about.attempt}")
        if self.was_told:
            text = f"{self.name} begins {about.leaf} of {about.run_id}, and knows that it was declared gone"
            world.witness.broken("who was declared gone starts nothing", text)
        world.witness.body_started(seen("start"), world.counted_on())
        try:
            yield about.attempt
        finally:
            # A process that is dead does not even clean up.
            if self.alive:
                world.witness.body_ended(seen("end"))
