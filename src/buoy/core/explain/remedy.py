"""Remedies in words: of a code that has several, the one that this run will get.

Invariant: the words about a code come from the catalogue where it has one remedy only.
"""

from __future__ import annotations

from buoy.core.diagnosis.catalogue import CATALOGUE, LOSS_WRITTEN_DOWN, WRITTEN_ANEW
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding
from buoy.core.explain.compensation import fate
from buoy.core.remedy.policy import decide


def remedy_words(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """What Buoy does about it."""
    match finding.code:
        case "A4":
            return _failure(finding, facts)
        case "E1" | "E2" if finding.remedy == "bind":
            return (f"It is bound to version {finding.evidence.get('bind_to')}, with which it began, and goes on.",)
        case "E1" | "E2" if finding.remedy == "hold":
            return ("It is held for a person: nobody can tell what it should run.",)
        case "R2":
            return (WRITTEN_ANEW, LOSS_WRITTEN_DOWN) if "lost_to" in finding.evidence else (WRITTEN_ANEW,)
        case _:
            return (CATALOGUE[finding.code].remedy,)


def _failure(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """A step failed, and nobody acted on it: by the class of its error, and the run's policy."""
    leaf, kind = finding.evidence.get("leaf"), finding.evidence.get("class")
    match decide(finding, facts.document.policy, facts).action:
        case "retry":
            tried, bound = finding.evidence.get("tried") or 0, finding.evidence.get("bound")
            often = f" (try {int(tried) + 1} of {bound})" if bound else ""
            return (f"{leaf} is run again, on a branch cut before it: its error is of class {kind}{often}.",)
        case "compensate":
            undoing = fate("compensate", facts.log or ())
            acts = f"The run itself acts on the failure of {leaf}: it undoes what is done and fails."
            return (acts,) if undoing is None else (acts, undoing)
        case "hold" if finding.remedy == "hold":
            return (f"It is held for a person: an error of class {kind} comes again until something is corrected.",)
        case _:
            return (f"An error of class {kind} says nothing about another try: the run's policy decides.",)
