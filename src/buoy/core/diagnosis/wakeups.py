"""Lost wake-ups: what should have woken a run and did not.

Invariants: a run that is held or due is awake. Only the end of a child can be lost on a holder too, since it waits for
the message. A message counts only if the run would use it now: other signals are kept and wake no run. What is a moment
late is still on its way.
"""

from __future__ import annotations

import msgspec

from buoy.core.diagnosis.facts import Facts, MessageFacts
from buoy.core.diagnosis.findings import Evidence
from buoy.core.durations import in_words
from buoy.core.limits import WAKE_SLACK_S
from buoy.core.log.document import OpenLeaf
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.pause import CODE_REASONS

_CONTROL = ("pause", "resume", "cancel", "jump")
_NEEDS_A_HAND = (Status.PENDING, Status.RUNNING, Status.COMPENSATING)


class LostWake(msgspec.Struct, frozen=True):
    """One wake-up that did not come."""

    text: str
    evidence: Evidence


def lost_wakes(facts: Facts) -> list[LostWake]:
    """Everything that should have woken the run, the surest first."""
    if facts.document.ended:
        return []
    found = _ended_children(facts) if facts.document.status is not Status.PAUSED else []
    if facts.holder is not None or _awake(facts):
        return found
    found += [*_overdue(facts), *_unread(facts), *_absent_children(facts)]
    if not found and facts.due_at is None and facts.document.status in _NEEDS_A_HAND:
        text = f"it is {facts.document.status}, no runner holds it, and no time is set to wake it"
        found.append(LostWake(text, {"task": "unknown" if facts.task is None else facts.task.id}))
    return found


def task_gone(facts: Facts) -> bool:
    """Whether there is positively no task that could wake the run, though it needs one. A paused run needs none before
    a request for it comes: resuming it makes one."""
    if facts.task is None or facts.task.state not in ("missing", "ended") or facts.holder is not None:
        return False
    return facts.document.status is not Status.PAUSED or any(each.kind in _CONTROL for each in facts.messages)


def _awake(facts: Facts) -> bool:
    # Without a task there is more to mend than a wake-up.
    return task_gone(facts) or (facts.due_at is not None and facts.due_at <= facts.now)


def _overdue(facts: Facts) -> list[LostWake]:
    if facts.document.status is Status.PAUSED:
        return _overdue_pause(facts)
    late = [leaf for leaf in facts.document.open if leaf.due_at is not None and leaf.due_at < facts.now - WAKE_SLACK_S]
    found = [
        LostWake(
            f"{_due_name(leaf)} was due {in_words(facts.now - (leaf.due_at or 0.0))} ago",
            {"leaf": leaf.leaf, "due_at": leaf.due_at, "late_s": round(facts.now - (leaf.due_at or 0.0), 3)},
        )
        for leaf in late
    ]
    wake_at = facts.document.wake_at
    if not found and wake_at is not None and wake_at < facts.now - WAKE_SLACK_S:
        late_s = facts.now - wake_at
        found.append(LostWake(f"it was due {in_words(late_s)} ago", {"due_at": wake_at, "late_s": round(late_s, 3)}))
    return found


def _overdue_pause(facts: Facts) -> list[LostWake]:
    """A pause that should be over by itself."""
    ends_at = None if facts.document.pause is None else facts.document.pause.expires_at
    if ends_at is None or ends_at >= facts.now - WAKE_SLACK_S:
        return []
    late_s = facts.now - ends_at
    text = f"its pause was to end by itself {in_words(late_s)} ago"
    return [LostWake(text, {"due_at": ends_at, "late_s": round(late_s, 3)})]


def _due_name(leaf: OpenLeaf) -> str:
    if leaf.retrying:
        return f"attempt {leaf.attempt + 1} of {leaf.leaf}"
    return f"the time-out of {leaf.leaf}" if leaf.kind == "signal" else f"timer {leaf.leaf}"


def _unread(facts: Facts) -> list[LostWake]:
    return [
        LostWake(
            f"message {each.number} ({each.kind}{' ' + each.about if each.about else ''}) was sent and not read",
            {"message": each.number, "kind": each.kind, "about": each.about},
        )
        for each in facts.messages
        if would_use(facts, each)
    ]


def would_use(facts: Facts, message: MessageFacts) -> bool:
    """Whether the run would act on that message now."""
    if message.kind in _CONTROL:
        return not waits_for_code(facts, message)
    if facts.document.status is Status.PAUSED:
        return False
    match message.kind:
        case "answer":
            return any(leaf.question_id == message.about for leaf in facts.document.open if leaf.question_id)
        case "signal":
            return any(leaf.kind == "signal" and leaf.name == message.about for leaf in facts.document.open)
        case "child_finished":
            return message.about in facts.children
        case _:
            return any(leaf.kind in ("step", "module") for leaf in facts.document.open)


def waits_for_code(facts: Facts, message: MessageFacts) -> bool:
    """Whether a worker has looked at that request to cancel since, and paused the run because its code does not fit.

    To wake the run again would lead to the same pause.
    """
    pause = facts.document.pause
    return (
        message.kind == "cancel" and pause is not None and pause.reason in CODE_REASONS and message.sent_at <= pause.at
    )


def _ended_children(facts: Facts) -> list[LostWake]:
    delivered = {each.about for each in facts.messages if each.kind == "child_finished"}
    return [
        LostWake(f"child {child} is {status}, and its end was not delivered", {"child": child, "child_status": status})
        for child, status in facts.children.items()
        if status in TERMINAL and child not in delivered
    ]


def _absent_children(facts: Facts) -> list[LostWake]:
    if facts.document.status is Status.PAUSED:
        return []  # it is made when the run is resumed
    return [
        LostWake(f"child {child} was asked for and never made", {"child": child, "child_status": status})
        for child, status in facts.children.items()
        if status == "absent"
    ]
