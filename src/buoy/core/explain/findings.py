"""Findings in words: what is wrong, what Buoy does about it and when, what a person can do.

Invariant: the texts about a code come from the catalogue. This module adds only what is special to the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from buoy.core.advice import RUN, Advice, Hint, act, each_once
from buoy.core.diagnosis.catalogue import CATALOGUE, LOSS_WRITTEN_DOWN, REWRITTEN, named
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.explain.compensation import fate
from buoy.core.explain.narrative import Narrative, served
from buoy.core.explain.phrases import Wording
from buoy.core.limits import STALE_AFTER_S, SWEEP_S
from buoy.core.log.lifecycle import Status
from buoy.core.remedy.policy import POLICIES, decide

# Codes that status and health alone do not explain.
_EXPLAINED_HERE = frozenset(
    {"A1", "A2", "A3", "A4", "D2", "E1", "E2", "P1", "Q1", "Q2", "Q3", "Q4", "Q6", "R2", "W1"}
    | {"J1", "J2", "J3", "J5", "J6", "J7"}
)
_ASLEEP = frozenset({"Q1", "Q2", "Q4"})
# Codes that only a comparison with the log shows.
_SEEN_IF_STALE = frozenset({"A1", "A2", "A3", "A4", "D2", "R2"})
# Codes whose cause a person could not guess.
_CAUSE_SHOWN = frozenset({"A1", "A2", "A3", "A4", "D2"})
_BY_POLICY = {
    "restart": "Its policy is restart: it begins again from the start, on a new branch.",
    "fail": "Its policy is fail: it ends as failed.",
    "hold": "Its policy is hold: it is paused for a person.",
}


def with_findings(narrative: Narrative, facts: Facts, findings: Sequence[Finding], words: Wording) -> Narrative:
    """The explanation with its findings added."""
    troubles = [each for each in findings if each.trouble]
    evidence = tuple(line for each in troubles if (line := _evidence(each)))
    # A drifted document comes before the findings that follow from it.
    explained = _EXPLAINED_HERE - _ASLEEP if facts.drift is not None else _EXPLAINED_HERE
    first = next((each for each in troubles if each.code in explained), None)
    if first is None:
        return replace(narrative, evidence=(*evidence, *narrative.evidence))
    entry = CATALOGUE[first.code]
    hints = [_advice(each, facts, words) for each in entry.you_can]
    ways = [*_poison(first, facts, words), *hints, *_ways_out(first, narrative), *_start(first, facts, words)]
    return replace(
        narrative,
        headline=_headline(first, facts),
        now=f"{entry.how} {narrative.now}" if first.code in _CAUSE_SHOWN else narrative.now,
        wrong=tuple(dict.fromkeys([finding_text(each) for each in troubles])),
        evidence=(*evidence, *narrative.evidence),
        next=narrative.next if _held_already(first, facts) else _next(first, facts, troubles),
        you_can=each_once(ways),
    )


def _next(first: Finding, facts: Facts, troubles: Sequence[Finding]) -> tuple[str, ...]:
    alone = _left_alone(first, facts)
    if alone:
        return alone
    done = _from_the_start(troubles) or remedy_words(first, facts)
    return (*done, *policy_words(first, facts), *_when(first, facts))


def _poison(finding: Finding, facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """The advice before `release`: quarantine it first."""
    if finding.code != "P1" or facts.document.pause is not None:
        return ()
    return (words.advise("quarantine it now", "recover", facts.document.run_id),)


def _ways_out(finding: Finding, narrative: Narrative) -> list[Advice]:
    """The advice so far, without commands that would drive a poison run again."""
    harmful = ("start_worker", "drive")
    return [each for each in narrative.you_can if finding.code != "P1" or each.kind not in harmful]


def _from_the_start(troubles: Sequence[Finding]) -> tuple[str, ...]:
    return (CATALOGUE["NS"].remedy,) if any(each.code == "NS" for each in troubles) else ()


def _start(finding: Finding, facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """A repaired run still needs a worker that drives it."""
    none = finding.code == "P1" or facts.document.ended or facts.document.pause is not None
    return () if none else served(facts, words)


def _held_already(finding: Finding, facts: Facts) -> bool:
    """The run is already paused for its missing definition; the end of that pause comes next."""
    return finding.code in ("E1", "E2") and facts.document.status is Status.PAUSED


def _left_alone(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """A run with an unknown policy: no remedy is allowed."""
    policy = facts.document.policy
    if policy in POLICIES or finding.remedy in ("none", "report", "adopt"):
        return ()
    known = ", ".join(POLICIES)
    return (
        f"Nothing by itself: its policy {policy!r} is unknown (known: {known}), so sweepers skip and report it. "
        "A process that knows its workflow can set another policy.",
    )


def _headline(finding: Finding, facts: Facts) -> str:
    run_id, status = facts.document.run_id, facts.document.status.replace("_", " ")
    if finding.code in _ASLEEP:
        return f"{run_id} is {status}, and nothing will wake it."
    if finding.code == "Q3" and facts.holder is not None:
        return f"{run_id} is held by {facts.holder.id}, which this store does not know."
    title = CATALOGUE[finding.code].title
    return f"{run_id} needs repair: {title[0].lower()}{title[1:]}."


def _advice(hint: Hint, facts: Facts, words: Wording) -> Advice:
    """The catalogue's advice, with the id of this run."""
    if not hint.command:
        return act(hint.text)
    run_id = facts.document.run_id
    return words.advise(hint.text, *(run_id if word == RUN else word for word in hint.command))


def policy_words(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """What the run's policy does, unless it simply resumes."""
    action = decide(finding, facts.document.policy, facts).action
    if action not in _BY_POLICY or finding.remedy not in ("branch", "release", "compensate"):
        return ()
    undoing = fate(action, facts.log or ())
    return (_BY_POLICY[action],) if undoing is None else (_BY_POLICY[action], undoing)


def _when(finding: Finding, facts: Facts) -> tuple[str, ...]:
    if finding.remedy in ("none", "report", "adopt"):
        return ()
    rest_s = _unseen_s(finding, facts)
    if any(each.role in ("worker", "sweeper") for each in facts.runners):
        return (f"When: at a whole sweep of a live worker, within {in_words(SWEEP_S + rest_s)}.",)
    more = "Nothing more" if "lost_to" in finding.evidence else "Nothing"
    still = f" and the run has not moved for {in_words(STALE_AFTER_S)}" if rest_s else ""
    return (f"When: as soon as you start a worker or a sweeper{still}; none is alive. {more} is lost until then.",)


def _unseen_s(finding: Finding, facts: Facts) -> float:
    """How long no sweep compares the run with its log: it does so for runs that have not moved for long."""
    if finding.code not in _SEEN_IF_STALE:
        return 0.0
    return max(facts.document.updated_at + STALE_AFTER_S - facts.now, 0.0)


def finding_text(finding: Finding) -> str:
    """`H1 (dead worker): runner r1, which drove it, is dead`."""
    return f"{named(finding.code)}: {finding.reason}"


def _evidence(finding: Finding) -> str:
    """`A1 (answer not taken up), on this evidence: document status awaiting_input, last stable event 4`."""
    known = [_fact(name, value) for name, value in finding.evidence.items() if value not in (None, "")]
    return f"{named(finding.code)}, on this evidence: {', '.join(known)}" if known else ""


def _fact(name: str, value: str | int | float | bool | None) -> str:
    if name.endswith("_s") and isinstance(value, int | float):
        return f"{name.removesuffix('_s').replace('_', ' ')} {in_words(max(float(value), 0.0))}"
    return f"{name.replace('_', ' ')} {value}"


def children_lines(facts: Facts) -> tuple[str, ...]:
    """The status of each child that the run waits for."""
    return tuple(f"child {child} is {status}" for child, status in facts.children.items())


def child_troubles(narrative: Narrative, facts: Facts, words: Wording) -> Narrative:
    """Adds the children in trouble that the run waits for, and where to look."""
    if facts.document.ended or not facts.child_troubles:
        return narrative
    names = list(facts.child_troubles)
    wrong = tuple(f"child {child}, which it waits for, is {text}" for child, text in facts.child_troubles.items())
    see = tuple(words.advise(f"see why child {child} does not continue", "why", child) for child in names[:3])
    named = phrases.listed([str(child) for child in names])
    first = f"It waits for {named}: look there first."
    return replace(
        narrative,
        wrong=(*narrative.wrong, *wrong),
        next=(*narrative.next, first),
        you_can=(*see, *narrative.you_can),
    )


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
            return (REWRITTEN, LOSS_WRITTEN_DOWN) if "lost_to" in finding.evidence else (REWRITTEN,)
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
