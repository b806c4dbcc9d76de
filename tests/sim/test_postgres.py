"""The simulator on PostgreSQL: a few seeds on a real server, each with the same story and the same faults each time."""

from __future__ import annotations

import pytest
from simulator.hunt import noticed
from simulator.seed import run_seed

pytestmark = pytest.mark.slow


def test_every_promise_is_kept_on_a_real_server() -> None:
    verdict = run_seed(1, "postgres")
    assert verdict.violations == [], verdict.command


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (run_seed(4, "postgres", trace=True) for _ in range(2))
    assert first.story == second.story
    assert first.violations == second.violations == []


def test_a_seed_that_shows_a_planted_bug_shows_it_again() -> None:
    """Nearly every seed shows this one, and ends there."""
    verdicts = (run_seed(seed, "postgres", "effects-before-commit") for seed in range(1, 10))
    found = next(verdict for verdict in verdicts if noticed(verdict))
    again = run_seed(found.seed, "postgres", found.mutant)
    assert again.violations == found.violations
