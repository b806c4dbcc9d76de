"""Real processes, struck by every fault at named store calls, under every policy, on both stores. A fixed set of them.

`python -m tests.crash.cases` plays others, or all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import product
from typing import Any

import pytest

from .cases import PHASES, Case, Point, sample
from .flows import POLICIES
from .gate import FAULTS, STORES
from .harness import ROOT

# Dozens of cases in one test: a minute of work, and many of them on a busy machine.
LIMIT_S = 1200.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]
# One for each store, policy and phase; what is quick, more often.
KINDS = len(STORES) * len(POLICIES) * len(PHASES)


def played(fault: str, number: int, *more: str) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "tests.crash.cases",
        "--faults",
        fault,
        "--sample",
        str(number),
        "--jobs",
        "1",
        *more,
    ]
    done = subprocess.run(
        [*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=0.95 * LIMIT_S, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_every_run_survives_its_process_being_struck_at_any_store_call(fault: str) -> None:
    results = played(fault, KINDS + 10 if fault in ("kill", "term") else KINDS)
    if not results:
        pytest.skip(f"this machine does not allow the fault {fault}")
    assert [(each["case"], each["problems"]) for each in results if each["problems"]] == []
    kinds = {tuple(each["case"].partition(":")[0].split()) for each in results}
    assert kinds == set(product(STORES, POLICIES, (fault,), PHASES))
    # A restart that failed leaves no time for what comes late in a life.
    assert sum(each["struck"] for each in results) >= 0.8 * len(results)
    if fault in ("full", "readonly"):
        assert sum(each["refused"] > 0 for each in results) >= len(results) / 2, (
            "no process noticed the fault: the test shows nothing"
        )
    if fault in ("kill", "zombie"):
        done = Counter[str]()
        for each in results:
            done.update(each["recoveries"])
        assert {"taken_over", "H1 restart", "failed by policy", "paused: hold"} <= set(done)


@pytest.mark.parametrize(("fault", "number"), [("kill", 8), ("term", 3), ("stop", 3)])
def test_every_run_on_postgresql_survives_its_process_being_struck(fault: str, number: int) -> None:
    """More of them: `python -m tests.crash.cases --stores postgres --faults kill,term,stop,zombie`."""
    results = played(fault, number, "--stores", "postgres")
    assert [(each["case"], each["problems"]) for each in results if each["problems"]] == []
    kinds = {tuple(each["case"].partition(":")[0].split()) for each in results}
    assert len(results) == len(kinds) == number
    assert fault != "kill" or kinds == set(product(("postgres",), POLICIES, (fault,), PHASES))
    assert sum(each["struck"] for each in results) >= 0.5 * len(results)


def test_a_sample_shows_each_kind_first_and_each_point_next() -> None:
    points = [Point("commit", number, side) for number in (1, 2, 3) for side in ("before", "after")]
    cases = [Case(*each) for each in product(("sqlite",), POLICIES, FAULTS, PHASES, points)]
    kinds = {case[:4] for case in cases}
    assert {case[:4] for case in sample(cases, len(kinds), 1)} == kinds
    assert {case.point for case in sample(cases, len(kinds) + len(points), 1)} == set(points)
    assert sample(cases, 20, 1) == sample(cases, 20, 1) != sample(cases, 20, 2)
    assert Case.named(str(cases[5])) == cases[5]
