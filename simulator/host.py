"""The simulated host: clocks, ids and proof of death, the ports that the system gives to the engine elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from buoy.core.ids import RunnerId
from buoy.ports.records import Evidence, RunnerRecord
from buoy.testing.deaths import InlineLiveness
from simulator.kernel import Kernel

# Any time that is not near zero: a wall clock.
EPOCH = 1_700_000_000.0


class Wall:
    """The wall clock of one host. Somebody may set it, forth or back."""

    def __init__(self, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s


class SimClock:
    """Virtual time, as a process reads it: the wall clocks of several hosts differ, and are set at times."""

    def __init__(self, kernel: Kernel, wall: Wall | None = None) -> None:
        self._kernel = kernel
        self._wall = wall or Wall()

    def now(self) -> float:
        return EPOCH + self._kernel.time + self._wall.skew_s

    def monotonic(self) -> float:
        return self._kernel.time


class SimIds:
    """Unique by the process's name, which is never used twice."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._count = count(1)

    def new(self, prefix: str = "") -> str:
        return f"{prefix}{self._process}-{next(self._count)}"

    def nonce(self) -> str:
        return f"{self._process}/{next(self._count)}"


class SimLiveness(InlineLiveness):
    """Proof by locks, as on one host: a process that is frozen still has its lock. Across hosts there is no proof."""

    def __init__(self, dead: Callable[[RunnerId], bool], *, single_host: bool) -> None:
        self._dead = dead
        self._one_host = single_host

    def sees(self, record: RunnerRecord) -> bool:
        return self._one_host

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        if self._one_host and self._dead(record.info.id):
            return {"proof": "lock free"}
        return None

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        return {"proof": "lock free"} if self._one_host and self._dead(runner) else None
