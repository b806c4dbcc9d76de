"""The plan of a seed: what it is about. Each seed has its own mixture of faults, so that rare ones get company.

Invariant: all that happens is in the plan, under a name: runs and their parts, what people do, what befalls processes,
and the processes themselves. `restricted` leaves out what is not named, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import TypeVar

import msgspec

from buoy.testing.sim.faults import Rates
from buoy.testing.sim.programs import Node, make_program, parts, without
from buoy.testing.sim.specs import make_graph
from buoy.testing.sim.workflows import MORE, SAME

# Virtual seconds during which things go wrong, and after which everything must come to rest.
CHAOS_S = 60.0
REST_S = 500.0
# Callbacks of one seed. A hundred times what a seed needs.
TURNS_MAX = 200_000

# An environment apart from the others, with workers of its own.
LAB = "lab"

_Named = TypeVar("_Named", "RunPlan", "Act", "Blow", "Slot")


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


class Plan(msgspec.Struct):
    """All that the seed decides beforehand."""

    store: str
    one_host: bool
    skew_s: float
    rates: Rates
    runs: list[RunPlan]
    slots: list[Slot]
    acts: list[Act]
    blows: list[Blow]
    waiting_runs_max: int
    driving_runs_max: int
    hints_lost: float
    only: tuple[str, ...] | None = None

    @property
    def people(self) -> list[str]:
        return sorted({act.who for act in self.acts})

    @property
    def deploys(self) -> bool:
        return any(blow.kind == "deploy" for blow in self.blows)

    def names(self) -> list[str]:
        """What can be left out of the story, the greatest things first."""
        found = [run.name for run in self.runs] + [slot.name for slot in self.slots[1:]]
        found += [blow.name for blow in self.blows] + [act.name for act in self.acts]
        for run in self.runs:
            found += [f"{run.name}/{part.id}" for part in parts(run.program)[1:]]
            found += [f"{run.name}/again"] if run.program.again else []
        return found


def make_plan(seed: int, store: str) -> Plan:
    rng = Random(f"plan {seed}")
    one_host = store == "sqlite" or rng.random() < 0.5
    calls = 1.0 if store == "sqlite" else 0.15  # an object store makes many calls where SQLite makes one
    lab = rng.random() < 0.2
    runs = [_run(rng, number, lab=lab) for number in range(1, rng.randint(3, 10))]
    return Plan(
        store=store,
        one_host=one_host,
        skew_s=rng.choice((0.0, 0.0, 2.0)),
        rates=_rates(rng, calls),
        runs=runs,
        slots=_slots(rng, lab=lab),
        acts=_acts(rng, [run.name for run in runs]),
        blows=_blows(rng),
        waiting_runs_max=rng.choice((0, 1, 2_000)),
        driving_runs_max=rng.choice((1, 2, 2_000)),
        hints_lost=rng.choice((0.0, 0.1, 0.9)),
    )


def restricted(plan: Plan, only: Collection[str]) -> Plan:
    """The plan with nothing in it but what is named. The first worker is always there."""
    dropped = {name for name in plan.names() if name not in only}

    def kept(some: list[_Named]) -> list[_Named]:
        return [each for each in some if each.name not in dropped]

    runs = [
        msgspec.structs.replace(run, program=without(run.program, dropped, run.name))
        for run in kept(plan.runs)
    ]  # fmt: skip
    return msgspec.structs.replace(
        plan,
        runs=[run for run in runs if run.program.kids],
        slots=kept(plan.slots),
        acts=kept(plan.acts),
        blows=kept(plan.blows),
        only=tuple(only),
    )


def _rates(rng: Random, calls: float) -> Rates:
    return Rates(
        crash=calls * rng.choice((0.0, 0.002, 0.01, 0.03)),
        fail=calls * rng.choice((0.0, 0.01, 0.1)),
        lost=calls * rng.choice((0.0, 0.01, 0.1)),
        slow=rng.choice((0.05, 0.3)),
        late=calls * rng.choice((0.0, 0.0, 0.02)),
        very_slow=calls * rng.choice((0.0, 0.01, 0.03)),
        twice=rng.choice((0.0, 0.0, 0.1)),
    )


def _run(rng: Random, number: int, *, lab: bool) -> RunPlan:
    is_async = rng.random() < 0.75
    name = f"run-{number}"
    env = LAB if lab and rng.random() < 0.4 else None
    if rng.random() < 0.15:
        program = make_graph(rng, f"graph-{number}")
    else:
        # What is apart stays apart: its programs have no children.
        depth = 0 if env is None else 1
        program = make_program(rng, is_async=is_async, size=rng.randint(1, 10), depth=depth)
    return RunPlan(
        name=name,
        at=rng.uniform(0.5, CHAOS_S / 3),
        program=program,
        is_async=is_async,
        by_worker=env is None and rng.random() < 0.5,
        twice=rng.random() < 0.2,
        pick=rng.random(),
        env=env,
    )


def _slots(rng: Random, *, lab: bool) -> list[Slot]:
    both = ("default", "side")
    slots = [Slot("worker-1", both)]
    slots += [Slot(f"worker-{n}", rng.choice((both, ("default",), ("side",)))) for n in range(2, rng.randint(2, 5))]
    if lab:
        slots.append(Slot("worker-9", both, LAB))
    return slots


_TALK = (*("say",) * 40, *("answer",) * 28, *("wrong",) * 7, *("pause",) * 10, *("resume",) * 10)


def _acts(rng: Random, runs: list[str]) -> list[Act]:
    """What people say and do, some of it only in some seeds."""
    kinds = list(_TALK)
    kinds += ["cancel"] * (6 if rng.random() < 0.4 else 0)
    kinds += ["jump"] * 8 + ["retry"] * 8 if rng.random() < 0.4 else []
    kinds += ["purge"] * (4 if rng.random() < 0.2 else 0)
    found: list[Act] = []
    for person in range(1, rng.randint(2, 4)):
        at = 0.0
        while True:
            at += rng.expovariate(0.7)
            if at > CHAOS_S:
                break
            name, who = f"act-{len(found) + 1}", f"person-{person}"
            found.append(Act(name, at, who, rng.choice(kinds), rng.choice(runs), rng.random(), rng.random()))
    return found


def _blows(rng: Random) -> list[Blow]:
    counts = {
        "crash": (rng.choice((0, 2, 6)), (0.0,)),
        "freeze": (rng.choice((0, 1, 4)), (1.0, 20.0, 60.0, 120.0)),
        "stop": (rng.choice((0, 2, 5)), (0.0, 2.0, 20.0)),
        "outage": (rng.choice((0, 0, 0, 1, 2)), (1.0, 10.0, 25.0)),
        "cut": (rng.choice((0, 0, 0, 1, 2)), (2.0, 15.0, 40.0)),
        "silence": (rng.choice((0, 0, 0, 1, 2)), (20.0, 60.0, 120.0)),
        "clock": (rng.choice((0, 0, 0, 1, 3)), (2.0, 60.0, 100.0)),
        "deploy": (rng.choice((0, 0, 0, 1, 3)), (SAME, MORE)),
        "damage": (rng.choice((0, 0, 0, 2, 5)), (0.0,)),
    }
    found: list[Blow] = []
    for kind, (count, spans) in counts.items():
        for number in range(1, count + 1):
            span_s = rng.choice(spans) * (1 if kind == "deploy" else rng.uniform(0.5, 1.5))
            name = f"{kind}-{number}"
            found.append(Blow(name, rng.uniform(1.0, CHAOS_S), kind, span_s, rng.random(), rng.random()))
    return found
