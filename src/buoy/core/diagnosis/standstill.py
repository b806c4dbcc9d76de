"""Standstill: a run whose owner lives and does not move it on, and a run that only takes long.

Invariants: an owner that stands still is a trouble; a step that takes long in an owner that beats is none, and only a
notice. Nothing here is proof of death. Ages are judged only where the owner's clock is ours.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.takers import hindrance
from buoy.core.diagnosis.wakeups import would_use
from buoy.core.durations import in_words
from buoy.core.limits import OVERDUE_S, SUSPECT_AFTER_S, WAKE_SLACK_S
from buoy.core.log import events as e
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.spec.model import is_spec

Cause: TypeAlias = Literal["stopped", "loop", "silent", "noted", "overdue", "unread"]


class Standstill(msgspec.Struct, frozen=True):
    """Why a run does not move though its owner lives."""

    cause: Cause
    text: str


def standing_still(facts: Facts) -> Standstill | None:
    """What shows that the owner does not move the run on; the surest sign first."""
    holder = facts.holder
    if holder is None or holder.gone:
        return None
    held = f"runner {holder.id}, which holds it,"
    if holder.stopped:
        return Standstill("stopped", f"{held} does not run: {hindrance(holder)}")
    if hindrance(holder) is not None:
        return Standstill("loop", f"{held} does not react: {hindrance(holder)}")
    if holder.beat_age_s is not None and holder.beat_age_s > SUSPECT_AFTER_S:
        return Standstill(
            "silent", f"runner {holder.id} holds it and has been silent for {in_words(holder.beat_age_s)}"
        )
    # A sweeper that runs once notes each runner elsewhere, however young its heartbeat. A known age says more.
    if holder.suspected and holder.beat_age_s is None:
        seen = "has sent no heartbeat since another machine looked at it"
        return Standstill("noted", f"runner {holder.id} holds it and {seen}")
    return _late(facts, holder)


def _late(facts: Facts, holder: RunnerFacts) -> Standstill | None:
    """A time has come, or a message, and a living owner has not acted on it."""
    document = facts.document
    if holder.beat_age_s is None or document.status is Status.PAUSED:
        return None
    late_s = 0.0 if document.wake_at is None else facts.now - document.wake_at
    if late_s > OVERDUE_S:
        text = f"it was due {in_words(late_s)} ago, and runner {holder.id}, which holds it, has not moved it on"
        return Standstill("overdue", text)
    ages = [facts.now - each.sent_at for each in facts.messages if would_use(facts, each)]
    if max(ages, default=0.0) > OVERDUE_S:
        kept = f"a message for it came {in_words(max(ages))} ago"
        return Standstill("unread", f"{kept}, and runner {holder.id}, which holds it, has not read it")
    return None


def without_progress_s(facts: Facts) -> float | None:
    """For how long nothing in it has moved, if that is longer than expected. Its owner beats all the while."""
    document = facts.document
    if facts.stale_after_s is None or not facts.live_owner or document.ended:
        return None
    if document.status in RESTING or document.status is Status.PAUSED:
        return None
    moved_at = max(document.updated_at, 0.0 if facts.progress is None else facts.progress.at)
    still_s = facts.now - moved_at
    return still_s if still_s > facts.stale_after_s else None


def waits_for_nothing(facts: Facts) -> Literal["certainly", "perhaps"] | None:
    """Whether the code of a run waits though nothing is open that could wake it.

    The outcome of a leaf and all that the code asks for after it are one commit. So a log that ends with an outcome and
    leaves nothing open was left by code that waits for something of its own. After a claim the code may still run: then
    only its owner's word, given since, makes it certain.
    """
    document, log = facts.document, facts.log
    if document.status is not Status.RUNNING or document.open_count or not log or is_spec(document.workflow):
        return None
    claimed, holder = facts.milestones.claimed, facts.holder
    if holder is None or holder.gone or claimed is None or claimed.runner != holder.id:
        return None
    age_s = facts.now - document.updated_at
    if standing_still(facts) is not None or any(would_use(facts, each) for each in facts.messages):
        return None
    beat_s = holder.beat_age_s
    said = beat_s is not None and beat_s < age_s and document.run_id in holder.stuck
    if said or not e.is_run_level(log[-1].body):
        return "certainly" if age_s > WAKE_SLACK_S else None
    return "perhaps" if age_s > OVERDUE_S else None
