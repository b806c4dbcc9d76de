"""Rules: all that must hold of a run, by name."""

from __future__ import annotations

from simulator.births import BIRTHS
from simulator.claims import CLAIMS
from simulator.conduct import CONDUCT
from simulator.contents import CONTENTS
from simulator.counts import COUNTS
from simulator.evidence import Check, Evidence
from simulator.families import FAMILIES
from simulator.graphs import GRAPHS
from simulator.invariants import CHECKS
from simulator.mail import MAIL
from simulator.pauses import PAUSES
from simulator.policies import POLICIES
from simulator.refusals import REFUSALS
from simulator.times import TIMES
from simulator.witness import Violation

ALL_CHECKS: dict[str, Check] = {
    **CHECKS, **MAIL, **CONDUCT, **TIMES, **COUNTS, **FAMILIES, **REFUSALS, **PAUSES, **POLICIES,
    **CONTENTS, **BIRTHS, **CLAIMS, **GRAPHS,
}  # fmt: skip


def broken(found: Evidence) -> list[Violation]:
    """All that does not hold of one run."""
    return [Violation(rule, f"{found.run_id}: {text}") for rule, check in ALL_CHECKS.items() for text in check(found)]
