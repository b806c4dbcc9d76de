"""Health: a verdict of this moment about a run, from facts alone. It is never stored; status is what the log says.

Invariants: death needs proof, so silence is `suspect` and never `dead`. A run that could not be read is `unknown`. A
waiting run without a holder is `idle`, however long it waits, unless a wake-up was lost. A run that no live worker can
take says what is missing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.standstill import standing_still, waits_for_nothing
from buoy.core.diagnosis.takers import can_run, hindrance, what_is_missing
from buoy.core.diagnosis.wakeups import lost_wakes, task_gone
from buoy.core.durations import in_words
from buoy.core.limits import BEAT_S, SUSPECT_AFTER_S
from buoy.core.log.lifecycle import RESTING
from buoy.core.log.wording import counted

_SHOWN_MAX = 3


class Health(StrEnum):
    """How a run stands now."""

    LIVE = "live"  # a living runner holds it
    IDLE = "idle"  # queued, waiting, paused or ended: it needs no process now
    SUSPECT = "suspect"  # its owner is silent, and nothing proves that it ended
    DEAD = "dead"  # its owner has certainly ended
    STALLED = "stalled"  # it should continue, and nothing will ever wake it
    DRIFTED = "drifted"  # its document and its log disagree
    UNKNOWN = "unknown"  # it could not be read


TROUBLES = frozenset({Health.SUSPECT, Health.DEAD, Health.STALLED, Health.DRIFTED, Health.UNKNOWN})


class Verdict(msgspec.Struct, frozen=True):
    """The health with the reasons for it, the strongest first."""

    health: Health
    reasons: tuple[str, ...]


def judge(facts: Facts) -> Verdict:
    """The health of a run."""
    if facts.unreadable is not None:
        return _verdict(Health.UNKNOWN, facts.unreadable)
    if facts.drift is not None:
        return _verdict(Health.DRIFTED, facts.drift)
    if facts.document.ended:
        return _verdict(Health.IDLE, f"the run is {facts.document.status}")
    if facts.holder is not None:
        return _judge_holder(facts, facts.holder)
    return _judge_free(facts)


def _judge_holder(facts: Facts, holder: RunnerFacts) -> Verdict:
    if holder.gone:
        known = holder.registered or holder.proof is not None or holder.gone_why is not None
        what = "is dead" if known else "is unknown to this store"
        return Verdict(Health.DEAD, (f"runner {holder.id} holds it and {what}", *death_of(holder)))
    if holder.doubt is not None:
        return _verdict(Health.UNKNOWN, f"runner {holder.id} holds it, and whether it lives is unknown: {holder.doubt}")
    still = standing_still(facts)
    if still is not None:
        return _verdict(Health.SUSPECT, still.text, "nothing proves that its process has ended")
    if waits_for_nothing(facts) == "certainly":
        return _verdict(Health.STALLED, "its code waits, and nothing is open that could wake it")
    lost = lost_wakes(facts)
    if lost:
        return _verdict(Health.STALLED, f"runner {holder.id} holds it, but {lost[0].text}")
    return _verdict(Health.LIVE, f"runner {holder.id} holds it{_beat(holder.beat_age_s)}")


def _beat(age_s: float | None) -> str:
    """The last beat; that some are missing is said before it counts as silence."""
    if age_s is None:
        return ""
    late = f"; it should come every {in_words(BEAT_S)}, and counts as silent from {in_words(SUSPECT_AFTER_S)} on"
    return f", last heartbeat {in_words(age_s)} ago{late if age_s > 2 * BEAT_S else ''}"


def death_of(runner: RunnerFacts) -> tuple[str, ...]:
    """On what evidence a runner counts as dead."""
    found: list[str] = []
    if runner.proof is not None:
        place = f"process {runner.pid} on {runner.host}"
        match runner.proof.get("proof"):
            case "lock free":
                found.append(f"{place} has ended: the lock that it held while it lived is free")
            case "the process is gone":
                found.append(f"{place} has ended: there is no such process any more")
            case "the host was rebooted":
                found.append(f"{place} has ended: the machine has rebooted since")
            case other:
                found.append(f"{place} has ended: {other}")
    if runner.gone_why is not None:
        found.append(f"it was declared gone: {runner.gone_why}")
    if not runner.registered:
        found.append("no such runner is registered")
    return tuple(found)


def _judge_free(facts: Facts) -> Verdict:
    """No runner holds it."""
    document = facts.document
    if task_gone(facts):
        ended = facts.task is not None and facts.task.state == "ended"
        return _verdict(Health.STALLED, "its task has ended, and the run has not" if ended else "it has no task")
    lost = lost_wakes(facts)
    if lost:
        return _verdict(Health.STALLED, *[each.text for each in lost[:_SHOWN_MAX]])
    if facts.rests:
        return _verdict(Health.IDLE, "the run is paused")
    if facts.due_at is not None and facts.due_at <= facts.now:
        missing = what_is_missing(document, facts.runners)
        if missing is not None and facts.allocations:
            return _verdict(Health.IDLE, f"it waits for Slurm: {counted(facts.allocations, 'allocation')} asked for")
        if missing is not None:
            return _verdict(Health.STALLED, f"it has been due for {in_words(facts.now - facts.due_at)}, and {missing}")
        able = next(each.id for each in facts.runners if can_run(document, each) and hindrance(each) is None)
        return _verdict(
            Health.IDLE, f"it has been queued for {in_words(facts.now - facts.due_at)}; runner {able} can take it"
        )
    if facts.due_at is not None:
        return _verdict(Health.IDLE, f"it needs no holder: it is due in {in_words(facts.due_at - facts.now)}")
    if document.status in RESTING and document.wake_at is None:
        return _verdict(Health.IDLE, "it needs no holder: a message will wake it")
    return _verdict(Health.STALLED, f"the run is {document.status}, no runner holds it, and no time is set to wake it")


def _verdict(health: Health, *reasons: str) -> Verdict:
    return Verdict(health, reasons)
