"""The simulated host: clocks, ids and proof of death, the ports that the system gives to the engine elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from buoy.core.ids import RunnerId
from buoy.ports.records import Evidence, RunnerRecord
from buoy.testing.deaths import InlineLiveness
from simulator.kernel import Kernel
from simulator.plan import Plan

# Any time that is not near zero: a wall clock.
EPOCH = 1_700_000_000.0


class Wall:
    """The wall clock of one host. The plan may set it, forth or back."""

    def __init__(self, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s


class Walls:
    """The wall clocks of all hosts. Without hours between them a worker that comes back is on the same host."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self._seed = seed
        self._single_host = plan.single_host
        self._moves = plan.store_clock
        self._skew_s = 0.0 if plan.single_host else max(plan.skew_s, plan.apart_s)
        self._walls: dict[str, Wall] = {}

    def of(self, process: str) -> Wall:
        """The wall clock of the host that a process is on."""
        host = "host" if self._single_host else process if self._moves else process.partition(".")[0]
        if host not in self._walls:
            self._walls[host] = Wall(Random(f"{self._seed} {host}").uniform(-self._skew_s, self._skew_s))
        return self._walls[host]


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
