"""Batch runs in the simulator: seeds keep every promise about jobs, and planted bugs are found."""

from __future__ import annotations

import pytest
from simulator.batch_mutants import BATCH_MUTANTS
from simulator.batch_world import play
from simulator.mutants import Mutant


@pytest.mark.parametrize("store", ["sqlite", "objects"])
def test_jobs_keep_their_promises_whatever_befalls_their_runners(store: str) -> None:
    faults: set[str] = set()
    twice = 0
    for seed in range(4):
        world = play(seed, store)
        assert world.witness.violations == [], f"seed {seed}"
        faults.update(world.faults.counts)
        keys = [(each.key, each.attempt) for each in world.ledger.starts]
        twice += len(keys) - len(set(keys))
    assert {"crash", "freeze", "stop"} <= faults
    assert twice > 0


def test_a_seed_plays_the_same_way_each_time() -> None:
    first, second = (play(1, "sqlite", trace=True) for _ in range(2))
    assert first.story.lines() == second.story.lines()


@pytest.mark.parametrize("mutant", BATCH_MUTANTS)
def test_a_planted_bug_of_batch_runs_is_found(mutant: type[Mutant]) -> None:
    worlds = (play(seed, "sqlite", mutant()) for seed in range(20))
    found = next(world.witness.violations for world in worlds if world.witness.violations)
    assert {each.rule for each in found} & set(mutant.rules)
