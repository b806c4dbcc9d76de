"""The part of a diagnosis that asks who cares for the run: its owner, its task, its wake-ups, who could take it.

Invariants: silence is never death; a queued run is not lost; a waiting run needs no owner.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.diagnosis.case import Case
from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.findings import Evidence, Finding
from buoy.core.diagnosis.standstill import standing_still, waits_for_nothing, without_progress_s
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.diagnosis.wakeups import lost_wakes, task_gone
from buoy.core.durations import in_words
from buoy.core.log.lifecycle import Status

_LOST_MAX = 5


def care_findings(case: Case) -> Iterator[Finding]:
    """H, Q and F, in this order."""
    facts = case.facts
    if (case.folded or facts.document).ended:
        return
    if facts.holder is not None:
        yield from _holder(case, facts.holder)
    elif task_gone(facts):
        yield _no_task(facts)
    else:
        yield from _interrupted(case)
    yield from _lost(facts)
    yield from _no_taker(facts)
    yield from _stream(case)


def _holder(case: Case, holder: RunnerFacts) -> Iterator[Finding]:
    evidence: Evidence = {"runner": holder.id, "host": holder.host, "pid": holder.pid}
    if holder.proof is None and holder.gone_why is None and not holder.registered:
        reason = f"its task is held by {holder.id}, which the store does not know"
        yield Finding(code="Q3", trouble=True, reason=reason, remedy="release", evidence=evidence)
    elif holder.gone:
        why = holder.gone_why or str((holder.proof or {}).get("proof", "proven dead"))
        reason = f"runner {holder.id}, which drove it, is dead: {why}"
        yield Finding(code="H1", trouble=True, reason=reason, remedy="release", evidence=evidence | {"proof": why})
    else:
        yield from _alive(case.facts, evidence | {"beat_age_s": holder.beat_age_s})


def _alive(facts: Facts, evidence: Evidence) -> Iterator[Finding]:
    """Its owner lives: H3, as a trouble only if the owner itself stands still; W1, if nothing could ever wake it."""
    still, long_s = standing_still(facts), without_progress_s(facts)
    if still is not None:
        found = evidence | {"sign": still.cause}
        yield Finding(code="H3", trouble=True, reason=still.text, remedy="report", evidence=found)
    elif long_s is not None:
        reason = f"nothing in it has moved for {in_words(long_s)}; its worker is alive, so this may be a long step"
        found = evidence | {"still_for_s": round(long_s, 3)}
        yield Finding(code="H3", trouble=False, reason=reason, evidence=found)
    stuck = waits_for_nothing(facts)
    if stuck is not None:
        sure = stuck == "certainly"
        reason = "its code waits, and no step, question, signal, timer or child is open that could wake it"
        perhaps = "its code runs or waits, and no step, question, signal, timer or child is open"
        found = evidence | {"last_event": facts.document.head_seq}
        yield Finding(
            code="W1", trouble=sure, reason=reason if sure else perhaps, remedy="report" if sure else "none",
            evidence=found,
        )  # fmt: skip


def _no_task(facts: Facts) -> Finding:
    task = facts.task
    assert task is not None
    ended = task.state == "ended"
    reason = f"its task {task.id} has ended, and the run has not" if ended else "it is active and has no task"
    evidence: Evidence = {"task": task.id, "generation": task.generation}
    return Finding(code="Q2" if ended else "Q1", trouble=True, reason=reason, remedy="requeue", evidence=evidence)


def _interrupted(case: Case) -> Iterator[Finding]:
    if case.status is not Status.INTERRUPTED:
        return
    interrupted_at = case.facts.milestones.interrupted_at
    since_s = max(case.facts.now - (case.facts.document.updated_at if interrupted_at is None else interrupted_at), 0.0)
    evidence: Evidence = {"age_s": round(since_s, 3)}
    if case.facts.due_at is None:
        reason = f"it was interrupted {in_words(since_s)} ago, and no worker was called to take it over"
        yield Finding(code="H2", trouble=True, reason=reason, remedy="requeue", evidence=evidence)
    else:
        reason = f"it was interrupted {in_words(since_s)} ago and is queued"
        yield Finding(code="H2", trouble=False, reason=reason, evidence=evidence)


def _lost(facts: Facts) -> Iterator[Finding]:
    for lost in lost_wakes(facts)[:_LOST_MAX]:
        yield Finding(code="Q4", trouble=True, reason=lost.text, remedy="requeue", evidence=lost.evidence)


def _no_taker(facts: Facts) -> Iterator[Finding]:
    if facts.holder is not None or facts.due_at is None or facts.due_at > facts.now or facts.rests:
        return
    missing = what_is_missing(facts.document, facts.runners)
    # Its next runner comes with an allocation.
    if missing is not None and not facts.allocations:
        since_s = facts.now - facts.due_at
        yield Finding(
            code="Q5",
            trouble=True,
            reason=f"it has been due for {in_words(since_s)}, and {missing}",
            remedy="report",
            evidence={
                "workflow": facts.document.workflow,
                "queue": facts.document.queue,
                "stack": facts.document.stack,
                "env": facts.document.env,
                "due_for_s": round(since_s, 3),
            },
        )


def _stream(case: Case) -> Iterator[Finding]:
    facts = case.facts
    at_work = case.status in (Status.RUNNING, Status.COMPENSATING)
    if facts.stream_open and at_work and not facts.live_owner:
        yield _watched(facts)
    elif facts.stream_open is False and at_work and facts.live_owner:
        reason = "it executes and no client watches: its events are stored all the same"
        yield Finding(code="F2", trouble=False, reason=reason)


def _watched(facts: Facts) -> Finding:
    """F1. A run that is due waits its turn: to queue it again would only put it behind the others."""
    watched = "a client watches it live, and no runner executes it"
    due_at = facts.due_at
    if facts.holder is not None or task_gone(facts) or due_at is None or due_at > facts.now:
        evidence: Evidence = {"due_at": due_at}
        return Finding(code="F1", trouble=True, reason=watched, remedy="requeue", evidence=evidence)
    evidence = {"due_for_s": round(facts.now - due_at, 3)}
    missing = what_is_missing(facts.document, facts.runners)
    if missing is not None:
        return Finding(
            code="F1", trouble=True, reason=f"{watched}: {missing}", remedy="report", evidence=evidence
        )  # fmt: skip
    reason = f"{watched} yet: it has been queued for {in_words(facts.now - due_at)}"
    return Finding(code="F1", trouble=False, reason=reason, evidence=evidence)
