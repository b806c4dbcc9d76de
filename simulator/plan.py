"""The plan of a seed: what it is about.

Invariant: all that happens is in the plan, under a name: runs and their parts, what people do, what befalls processes,
and the processes themselves. `restricted` leaves out what is not named, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from buoy.core.schedule.schedule import CatchUp
from simulator.faults import Rates, Strike
from simulator.programs import Node, parts, without

# Virtual seconds during which things go wrong, and after which everything must come to rest.
CHAOS_S = 60.0
REST_S = 500.0
# Callbacks of one seed, several times what a large one needs; and events of all its runs. Many processes that want the
# same work at once take many turns, but write no more for it.
TURNS_MAX = 600_000
EVENTS_MAX = 2_000

# An environment apart from the others, with workers of its own.
LAB = "lab"
# Two stacks of one environment.
STACKS = ("north", "south")

_Named = TypeVar("_Named", "RunPlan", "Act", "Blow", "Slot", "Post", "TimePlan", "Strike")


class RunPlan(msgspec.Struct):
    """A run that will be started."""

    name: str
    at: float
    program: Node
    is_async: bool
    # Started by a worker, which then drives it itself.
    by_worker: bool
    twice: bool
    pick: float
    env: str | None = None
    # Of one that is started by a person; a worker starts runs of its own stack.
    stack: str | None = None
    # Another system wrote its document, and it has no log: only who was asked to may take it in.
    foreign: bool = False
    # What is to become of it when its process dies under it.
    policy: str = "resume"


class Act(msgspec.Struct):
    """Something that a person does to a run or its kin. `pick` and `luck` choose among them, and the details."""

    name: str
    at: float
    who: str
    kind: str
    run: str
    pick: float
    luck: float


class Blow(msgspec.Struct):
    """Something that befalls a process, a host or the data."""

    name: str
    at: float
    kind: str
    span_s: float
    pick: float
    luck: float


class Slot(msgspec.Struct):
    """A place where a worker is kept running."""

    name: str
    queues: tuple[str, ...]
    env: str | None = None
    stack: str | None = None


class Post(msgspec.Struct):
    """A place where a sweeper is kept running that is no worker: `buoy sweeper --stack --env --adopt`."""

    name: str
    stack: str | None = None
    env: str | None = None
    adopt: bool = False


class TimePlan(msgspec.Struct):
    """A schedule that a person adds. Workers start runs by it until it is removed."""

    name: str
    at: float
    every_s: int
    catch_up: CatchUp
    program: Node
    is_async: bool


class Plan(msgspec.Struct):
    """All that the seed decides beforehand."""

    store: str
    single_host: bool
    skew_s: float
    rates: Rates
    runs: list[RunPlan]
    slots: list[Slot]
    acts: list[Act]
    blows: list[Blow]
    waiting_runs_max: int
    driving_runs_max: int
    hints_lost: float
    posts: list[Post] = []
    schedules: list[TimePlan] = []
    strikes: list[Strike] = []
    only: tuple[str, ...] | None = None
    # Each machine's clock is wrong by up to this much; workers that share a store with a clock change machines.
    apart_s: float = 0.0
    store_clock: bool = False

    @property
    def people(self) -> list[str]:
        return sorted({act.who for act in self.acts})

    @property
    def one_clock(self) -> bool:
        """Whether all processes and the store go by the same clock, and no blow sets it."""
        return self.single_host and not self.store_clock and all(blow.kind != "clock" for blow in self.blows)

    @property
    def deploys(self) -> bool:
        return any(blow.kind in ("deploy", "rename") for blow in self.blows)

    @property
    def renames(self) -> bool:
        return any(blow.kind == "rename" for blow in self.blows)

    def names(self) -> list[str]:
        """What can be left out of the story, the greatest things first."""
        found = [run.name for run in self.runs] + [slot.name for slot in self.slots[1:]]
        found += [each.name for each in self.posts] + [each.name for each in self.schedules]
        found += [each.name for each in self.strikes] + [each.name for each in self.blows]
        found += [each.name for each in self.acts]
        for run in (each for each in self.runs if not each.foreign):
            found += [f"{run.name}/{part.id}" for part in parts(run.program)[1:]]
            found += [f"{run.name}/again"] if run.program.again else []
        return found


def restricted(plan: Plan, only: Collection[str]) -> Plan:
    """The plan with nothing in it but what is named. The first worker is always there."""
    dropped = {name for name in plan.names() if name not in only}

    def kept(some: list[_Named]) -> list[_Named]:
        return [each for each in some if each.name not in dropped]

    runs = [
        run if run.foreign else msgspec.structs.replace(run, program=without(run.program, dropped, run.name))
        for run in kept(plan.runs)
    ]  # fmt: skip
    return msgspec.structs.replace(
        plan,
        runs=[run for run in runs if run.program.kids],
        slots=kept(plan.slots),
        acts=kept(plan.acts),
        blows=kept(plan.blows),
        posts=kept(plan.posts),
        schedules=kept(plan.schedules),
        strikes=kept(plan.strikes),
        only=tuple(only),
    )
