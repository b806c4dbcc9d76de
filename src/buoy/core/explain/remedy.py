"""The text of the remedy chosen for this run, for codes with several remedies.

Invariant: the text about a code with one remedy comes from the catalogue.
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
            return (f"It is bound to version {finding.evidence.get('bind_to')}, with which it began, and continues.",)
        case "E1" | "E2" if finding.remedy == "hold":
            return ("It is paused for a person: the store does not say what it should run.",)
        case "R2":
            return (WRITTEN_ANEW, LOSS_WRITTEN_DOWN) if "lost_to" in finding.evidence else (WRITTEN_ANEW,)
        case _:
            return (CATALOGUE[finding.code].remedy,)


def _failure(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """A step failed and the run did not react: the class of its error and the policy decide."""
    leaf, kind = finding.evidence.get("leaf"), finding.evidence.get("class")
    match decide(finding, facts.document.policy, facts).action:
        case "retry":
            tried, bound = finding.evidence.get("tried") or 0, finding.evidence.get("bound")
            often = f" (try {int(tried) + 1} of {bound})" if bound else ""
            return (f"{leaf} runs again, on a branch cut before it: its error is of class {kind}{often}.",)
        case "compensate":
            undoing = fate("compensate", facts.log or ())
            acts = f"The run reacts to the failure of {leaf}: it undoes its completed steps and fails."
            return (acts,) if undoing is None else (acts, undoing)
        case "hold" if finding.remedy == "hold":
            return (f"It is paused for a person: an error of class {kind} repeats until its cause is corrected.",)
        case _:
            return (f"An error of class {kind} does not say whether another attempt helps: the run's policy decides.",)
