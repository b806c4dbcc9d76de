"""The simulator on PostgreSQL: a few seeds on a real server, and the same story each time."""

from __future__ import annotations

import pytest
from simulator.seed import run_seed

pytestmark = pytest.mark.slow


def test_every_promise_is_kept_on_a_real_server() -> None:
    verdict = run_seed(1, "postgres")
    assert verdict.violations == [], verdict.command


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (run_seed(4, "postgres", trace=True) for _ in range(2))
    assert first.story == second.story
    assert first.violations == second.violations == []
