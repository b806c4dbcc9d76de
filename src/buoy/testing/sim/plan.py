"""The plan of a seed: what it is about. Each seed has its own mixture of faults, so that rare ones get company."""

from __future__ import annotations

from random import Random

import msgspec

from buoy.testing.sim.faults import Rates
from buoy.testing.sim.programs import Node, make_program

# Virtual seconds during which things go wrong, and after which everything must come to rest.
CHAOS_S = 60.0
REST_S = 400.0
# Callbacks of one seed. A hundred times what a seed needs.
TURNS_MAX = 60_000


class RunPlan(msgspec.Struct):
    """A run that will be started."""

    run_id: str
    at: float
    program: Node
    is_async: bool
    # Started by a worker, which then drives it itself.
    by_worker: bool
    twice: bool


class Plan(msgspec.Struct):
    """All that the seed decides beforehand."""

    store: str
    one_host: bool
    skew_s: float
    rates: Rates
    runs: list[RunPlan]
    workers: int
    senders: int
    waiting_runs_max: int
    driving_runs_max: int
    cancels: bool
    hints_lost: float
    # Times of what happens to processes as a whole.
    crashes: list[float]
    freezes: list[tuple[float, float]]
    stops: list[tuple[float, float]]
    outages: list[tuple[float, float]]
    cuts: list[tuple[float, float]]


def make_plan(seed: int, store: str) -> Plan:
    rng = Random(f"plan {seed}")
    one_host = store == "sqlite" or rng.random() < 0.5
    calls = 1.0 if store == "sqlite" else 0.15  # an object store makes many calls where SQLite makes one
    return Plan(
        store=store,
        one_host=one_host,
        skew_s=rng.choice((0.0, 0.0, 2.0)),
        rates=_rates(rng, calls),
        runs=[_run(rng, number) for number in range(1, rng.randint(3, 12))],
        workers=rng.randint(1, 4),
        senders=rng.randint(1, 3),
        waiting_runs_max=rng.choice((0, 1, 2_000)),
        driving_runs_max=rng.choice((1, 2, 2_000)),
        cancels=rng.random() < 0.4,
        hints_lost=rng.choice((0.0, 0.1, 0.9)),
        crashes=_times(rng, rng.choice((0, 2, 6))),
        freezes=_spans(rng, rng.choice((0, 1, 4)), (1.0, 20.0, 60.0)),
        stops=_spans(rng, rng.choice((0, 2, 5)), (0.0, 2.0, 20.0)),
        outages=_spans(rng, rng.choice((0, 0, 0, 1, 2)), (1.0, 10.0, 25.0)),
        cuts=_spans(rng, rng.choice((0, 0, 0, 1, 2)), (2.0, 15.0, 40.0)),
    )


def _rates(rng: Random, calls: float) -> Rates:
    return Rates(
        crash=calls * rng.choice((0.0, 0.002, 0.01, 0.03)),
        fail=calls * rng.choice((0.0, 0.01, 0.1)),
        lost=calls * rng.choice((0.0, 0.01, 0.1)),
        slow=rng.choice((0.05, 0.3)),
        late=calls * rng.choice((0.0, 0.0, 0.02)),
        very_slow=calls * rng.choice((0.0, 0.01, 0.03)),
    )


def _run(rng: Random, number: int) -> RunPlan:
    is_async = rng.random() < 0.75
    return RunPlan(
        run_id=f"run-{number}",
        at=rng.uniform(0.5, CHAOS_S / 3),
        program=make_program(rng, is_async=is_async, size=rng.randint(1, 12)),
        is_async=is_async,
        by_worker=rng.random() < 0.5,
        twice=rng.random() < 0.2,
    )


def _times(rng: Random, count: int) -> list[float]:
    return sorted(rng.uniform(1.0, CHAOS_S) for _ in range(count))


def _spans(rng: Random, count: int, lengths: tuple[float, ...]) -> list[tuple[float, float]]:
    return sorted((rng.uniform(1.0, CHAOS_S), rng.choice(lengths) * rng.uniform(0.5, 1.5)) for _ in range(count))
