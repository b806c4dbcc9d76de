"""Refusals: a message is consumed without effect only for a reason that the log shows.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from buoy.core.log import events as e
from buoy.engine.run.mailbox import AnswerMessage, ChildEnd, Reason
from buoy.ports.records import Message
from simulator.evidence import Check, Evidence
from simulator.reading import old_name, parts_of, pause_of, times_redone, walked

_BEGINS = e.InteractionRequested | e.ChildStarted


def what_is_refused_has_a_reason(found: Evidence) -> Iterator[str]:
    """Twins are always refused, everything else only if it asks for what the run cannot do then."""
    inbox = {message.number: message for message in found.inbox}
    for event, seen in walked(found.log):
        if not isinstance(event.body, e.MessageRefused):
            continue
        message = inbox.get(event.body.message)
        if message is None or any(
            each.dedupe == message.dedupe and each.number < message.number for each in found.inbox
        ):
            continue
        # `seen` ends with the refusal itself.
        if _could_be_met(message, found.log[: event.seq - 1], seen):
            yield f"event {event.seq} refuses message {message.number} ({message.kind}), which the run could meet"


def _could_be_met(message: Message, log: list[e.Event], seen: list[e.Event]) -> bool:
    match message.kind:
        case "signal":
            return True
        case "answer":
            answer = msgspec.json.decode(message.body, type=AnswerMessage)
            fits = isinstance(msgspec.json.decode(answer.answer), str)  # all questions of these programs want a text
            return fits and _open_or_again(log, seen, "question_id", answer.question_id)
        case "child_finished":
            child = msgspec.json.decode(message.body, type=ChildEnd).child
            return _open_or_again(log, seen, "child", child)
        case "pause":
            # A person who goes back to an earlier step takes the pause back that this needed.
            return pause_of(log) is None and msgspec.json.decode(message.body, type=Reason).hold_s is None
        case "resume":
            takes_back = msgspec.json.decode(message.body, type=Reason).takes_back
            return pause_of(log) is not None and takes_back is None
        case "cancel":
            return not any(isinstance(each.body, e.CancelRequested) for each in log)
        case _:
            return False


def _open_or_again(log: list[e.Event], seen: list[e.Event], field: str, wanted: str) -> bool:
    """Whether the run waits for that question or child, or will: a recovery hid it, and its id is as it was."""
    parts = parts_of(seen)
    for part in parts.values():
        if getattr(part.begun.body, field, None) == wanted and isinstance(part.begun.body, _BEGINS):
            return part.outcome == "open"
    for event in log:
        if isinstance(event.body, _BEGINS) and getattr(event.body, field, None) == wanted:
            leaf = old_name(event.body.leaf)
            return leaf not in parts and times_redone(log[: event.seq], leaf) == times_redone(log, leaf)
    return False


REFUSALS: dict[str, Check] = {"what is refused has a reason": what_is_refused_has_a_reason}
