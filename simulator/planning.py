"""Planning: how a seed draws its plan. Each seed has its own mixture of faults, so that rare ones get company.

Invariant: what came to plans later is drawn from a chance of its own (`widening`), so that the seeds of before still
tell what they told.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from simulator.faults import Rates
from simulator.plan import CHAOS_S, LAB, Act, Blow, Plan, RunPlan, Slot
from simulator.programs import make_program
from simulator.specs import make_graph
from simulator.widening import widened
from simulator.workflows import MORE, SAME


def make_plan(seed: int, store: str, *, narrow: bool = False) -> Plan:
    rng = Random(f"plan {seed}")
    single_host = store == "sqlite" or rng.random() < 0.5
    calls = 1.0 if store == "sqlite" else 0.15  # an object store makes many calls where SQLite makes one
    lab = rng.random() < 0.2
    runs = [_run(rng, number, lab=lab) for number in range(1, rng.randint(3, 10))]
    plan = Plan(
        store=store,
        single_host=single_host,
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
    wide = widened(plan, seed, narrow=narrow)
    # A database server has a clock, and its clients are on any number of hosts.
    return replace(wide, store_clock=True, single_host=False) if store == "postgres" else wide


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
