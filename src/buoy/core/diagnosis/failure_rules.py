"""A4: a leaf failed, and the run did not react. The class of its error decides, each with its own bound.

Invariant: tries are counted over the whole log, for each leaf and class, so a branch does not reset the count.
"""

from __future__ import annotations

from buoy.core.diagnosis.case import Case
from buoy.core.diagnosis.error_classes import CLASS_BOUNDS, MORE_FACTOR_MAX, classify
from buoy.core.diagnosis.findings import Evidence, Finding, Remedy
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.core.log.wording import error_text


def failure_finding(case: Case) -> Finding | None:
    """The failure to which the run did not react, if it is the last event."""
    if case.status is not Status.RUNNING or case.facts.live_owner:
        return None
    assert case.state is not None
    if any(leaf.kind != "group" for leaf in case.state.open.values()):
        return None
    failed = _failed_last(case)
    if failed is None:
        return None
    event, body = failed
    kind = classify(body.error)
    tried = _tries(case, body.leaf, kind)
    evidence: Evidence = {
        "leaf": body.leaf,
        "event": event.seq,
        "class": kind,
        "error": error_text(body.error)[:200],
        "tried": tried,
        "age_s": round(max(case.facts.now - event.at, 0.0), 3),
    }
    return _by_class(case, body.leaf, kind, tried, evidence)


def _failed_last(case: Case) -> tuple[e.Event, e.StepFailed | e.ModuleFailed] | None:
    """The failure at the end of the lineage; of a group and its part the part."""
    found: tuple[e.Event, e.StepFailed | e.ModuleFailed] | None = None
    assert case.state is not None
    for event in reversed(case.lineage):
        body = event.body
        if e.is_run_level(body):
            continue
        if not isinstance(body, e.StepFailed | e.ModuleFailed):
            return found
        leaf = case.state.leaves.get(body.leaf)
        if found is None or (leaf is not None and leaf.kind != "group"):
            found = (event, body)
        if leaf is None or leaf.kind != "group":
            return found
    return found


def _tries(case: Case, leaf: LeafId, kind: str) -> int:
    """How often recovery has tried this leaf again for this class."""
    bodies = [event.body for event in case.log if isinstance(event.body, e.WorkflowRecovered)]
    return sum(
        1
        for body in bodies
        if body.finding == "A4" and body.evidence.get("leaf") == leaf and body.evidence.get("class") == kind
    )


def _by_class(case: Case, leaf: LeafId, kind: str, tried: int, evidence: Evidence) -> Finding:
    bound = CLASS_BOUNDS.get(kind, 0)
    article = "an" if kind == "unknown" else "a"
    what = f"{leaf} failed with {article} {kind} error, and the run did not react"
    remedy: Remedy
    if tried < bound:
        remedy, text = "retry", f"{what}; try {tried + 1} of {bound} by recovery"
        evidence = evidence | {"bound": bound}
        if kind == "resource":
            evidence["more_factor"] = min(2 ** (tried + 1), MORE_FACTOR_MAX)
            text = f"{text}, with the same limits: raise them where they are set"
    elif kind == "misconfiguration":
        remedy, text = "hold", f"{what}: a person must correct something"
    else:
        often = f", after {tried} tries by recovery" if tried else ""
        policy = case.facts.document.policy
        resumes = kind != "unknown" or policy == "resume"
        acts = "the run itself acts on it" if resumes else f"its policy, {policy}, decides"
        remedy, text = "compensate", f"{what}{often}: {acts}"
        if resumes and case.facts.due_at is not None and case.facts.holder is None:
            queued = f"{what} yet: it is queued, and does so when it is taken"
            return Finding(code="A4", trouble=False, reason=queued, evidence=evidence)
    return Finding(code="A4", trouble=True, reason=text, remedy=remedy, evidence=evidence)
