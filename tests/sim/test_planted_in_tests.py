"""A planted bug that hardly any simulated history shows has a test of its own, and that test finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulator.near import UNFOUND
from simulator.planted import MUTANTS

ROOT = Path(__file__).parents[2]
TESTED = sorted(name for name, mutant in MUTANTS.items() if mutant.test is not None)


def test_each_planted_bug_that_no_seed_shows_has_a_test_of_its_own() -> None:
    assert set(UNFOUND) <= set(TESTED)


@pytest.mark.parametrize("name", TESTED)
def test_the_test_of_a_planted_bug_finds_it(name: str) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.sim.plant", "-p", "no:cacheprovider")
    found = subprocess.run(
        [*command, str(MUTANTS[name].test)],
        env={**os.environ, "BUOY_PLANT": name},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout + found.stderr
    assert " failed" in found.stdout and "StaleMutant" not in found.stdout
