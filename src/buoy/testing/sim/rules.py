"""Rules: all that must hold of a run, by name."""

from __future__ import annotations

from buoy.testing.sim.conduct import CONDUCT
from buoy.testing.sim.counts import COUNTS
from buoy.testing.sim.evidence import Check, Evidence
from buoy.testing.sim.families import FAMILIES
from buoy.testing.sim.invariants import CHECKS
from buoy.testing.sim.mail import MAIL
from buoy.testing.sim.times import TIMES
from buoy.testing.sim.witness import Violation

ALL_CHECKS: dict[str, Check] = {**CHECKS, **MAIL, **CONDUCT, **TIMES, **COUNTS, **FAMILIES}


def broken(found: Evidence) -> list[Violation]:
    """All that does not hold of one run."""
    return [Violation(rule, f"{found.run_id}: {text}") for rule, check in ALL_CHECKS.items() for text in check(found)]
