"""Mail: what must hold of the messages of a run: none is lost, each has one effect, and they count in their order.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from buoy.core.log import events as e
from buoy.engine.run.mailbox import Signal
from buoy.ports.records import Message
from simulator.evidence import Check, Evidence
from simulator.reading import shown, walked


def sent_messages_are_there(found: Evidence) -> Iterator[str]:
    by_number = {message.number: message for message in found.inbox}
    if sorted(by_number) != list(range(1, len(found.inbox) + 1)):
        yield f"the inbox has the numbers {sorted(by_number)}"
    for sent in found.sends:
        there = by_number.get(sent.number)
        if there is None or there.dedupe != sent.dedupe:
            yield f"message {sent.number} ({sent.kind} {sent.dedupe}) was acknowledged and is lost"
    dedupes = [message.dedupe for message in found.inbox]
    for twin in sorted({dedupe for dedupe in dedupes if dedupes.count(dedupe) > 1}):
        yield f"{twin} is in the inbox {dedupes.count(twin)} times"


def messages_are_consumed_once(found: Evidence) -> Iterator[str]:
    """On one lineage. What a branch hides becomes unread again; what controls the run is never hidden."""
    by_number = {message.number: message for message in found.inbox}
    consumed: dict[int, int] = {}
    for event in shown(found.log):
        number = getattr(event.body, "message", None)
        if number is None:
            continue
        if number in consumed:
            yield f"message {number} is consumed by events {consumed[number]} and {event.seq}"
        consumed[number] = event.seq
        message = by_number.get(number)
        if message is None:
            yield f"event {event.seq} consumes message {number}, which was never sent"
        elif isinstance(event.body, e.SignalReceived) and _payload(message) != bytes(event.body.payload):
            yield f"event {event.seq} has another payload than message {number}"


def _payload(message: Message) -> bytes:
    return bytes(msgspec.json.decode(message.body, type=Signal).payload)


def signals_have_one_effect(found: Evidence) -> Iterator[str]:
    """A signal that was sent twice under one dedupe id is one signal."""
    effects: dict[str, int] = {}
    for event in shown(found.log):
        if isinstance(event.body, e.SignalReceived) and event.body.message is not None:
            by = str(msgspec.json.decode(event.body.payload).get("by"))
            if by in effects:
                yield f"signal {by} has an effect at events {effects[by]} and {event.seq}"
            effects[by] = event.seq


def requests_count_in_their_order(found: Evidence) -> Iterator[str]:
    """A pause that was sent before a resume must not undo it."""
    last: e.Event | None = None
    for event in found.log:
        if isinstance(event.body, e.Paused | e.Resumed | e.CancelRequested) and event.body.message is not None:
            if last is not None and event.body.message < getattr(last.body, "message", 0):
                yield f"event {event.seq} ({event.type}) is by an older message than event {last.seq} ({last.type})"
            last = event


def signals_come_in_their_order(found: Evidence) -> Iterator[str]:
    """Of the signals of one name, the oldest unconsumed one comes first."""
    signals: dict[int, str] = {}
    for message in found.inbox:
        if message.kind == "signal":
            signals[message.number] = msgspec.json.decode(message.body, type=Signal).name
    for event, seen in walked(found.log):
        if not isinstance(event.body, e.SignalReceived) or event.body.message is None:
            continue
        taken = {getattr(each.body, "message", None) for each in seen}
        name = signals.get(event.body.message)
        older = [number for number, other in signals.items() if other == name and number < event.body.message]
        passed = [number for number in older if number not in taken]
        if passed:
            yield f"event {event.seq} consumes message {event.body.message}, and {passed} came before it"


def unread(log: list[e.Event], inbox: Sequence[Message]) -> list[Message]:
    """The messages that no event has consumed."""
    consumed = {getattr(event.body, "message", None) for event in shown(log)}
    return [message for message in inbox if message.number not in consumed]


MAIL: dict[str, Check] = {
    "no acknowledged message is lost": sent_messages_are_there,
    "messages are consumed once": messages_are_consumed_once,
    "signals have one effect": signals_have_one_effect,
    "signals come in their order": signals_come_in_their_order,
    "requests count in their order": requests_count_in_their_order,
}
