"""First look: whether the document of a run gives a sign of trouble, so that its log has to be read.

Used where each request is billed. Invariants: a run that needs a process and has none always gives a sign. So does a
run that waits for a child, whose end may have been lost. What only a log shows of a run that rests is left to the close
look that a sweep takes at every run in turn.
"""

from __future__ import annotations

from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.health import TROUBLES, judge


def gives_sign(facts: Facts) -> bool:
    """Whether anything about the run asks for a closer look. `facts`: made of its document alone."""
    doc = facts.document
    if judge(facts).health in TROUBLES or (doc.pause is not None and doc.pause.reason != "user"):
        return True
    if doc.open_count > len(doc.open) or any(leaf.kind == "child" for leaf in doc.open):
        return True
    return bool(diagnose(facts))
