"""Contents: what events carry is what was sent, called and returned; each part ends as what it began.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from buoy.core.log import events as e
from buoy.engine.run.mailbox import AnswerMessage, ChildEnd, Reason, Signal
from buoy.ports.records import Message
from simulator.evidence import Check, Evidence
from simulator.programs import RETRIES, Node, declined_by, parts
from simulator.reading import name_of, old_name, times_redone, walked

_STEP_ENDS = (e.StepCompleted, e.StepFailed, e.RetryScheduled, e.LeafCancelled)
_MODULE_ENDS = (e.ModuleCompleted, e.ModuleFailed, e.RetryScheduled, e.LeafCancelled)
_ENDS: dict[type[e.Payload], tuple[type[e.Payload], ...]] = {
    e.StepStarted: _STEP_ENDS,
    e.ModuleStarted: _MODULE_ENDS,
    e.InteractionRequested: (e.InteractionResponse, e.LeafCancelled),
    e.SignalWaited: (e.SignalReceived, e.LeafCancelled),
    e.TimerStarted: (e.TimerFired, e.LeafCancelled),
    e.ChildStarted: (e.ChildFinished, e.LeafCancelled),
    e.CompensationStarted: (e.CompensationCompleted, e.CompensationFailed, e.CompensationRetryScheduled),
}
_KINDS: dict[type[e.Payload], str] = {
    e.SignalReceived: "signal",
    e.InteractionResponse: "answer",
    e.ChildFinished: "child_finished",
    e.CancelRequested: "cancel",
    e.Paused: "pause",
    e.Resumed: "resume",
}
_FAILS = (e.StepFailed, e.ModuleFailed, e.RetryScheduled, e.CompensationFailed, e.CompensationRetryScheduled)
# What bodies of these programs raise, and what the engine raises for those that are too slow.
_RAISED = ("Flaky", "Hopeless", "TimeoutError")
_ATTEMPTS = (e.StepStarted, e.ModuleStarted, e.CompensationStarted)


def what_was_sent_is_what_arrives(found: Evidence) -> Iterator[str]:
    """An event that a message caused carries what that message carries."""
    inbox = {message.number: message for message in found.inbox}
    begun: dict[str, e.Body] = {}
    for event in found.log:
        body, leaf = event.body, name_of(event.body)
        if leaf is not None and type(body) in _ENDS:
            begun[leaf] = body
        number = getattr(body, "message", None)
        if number is None or type(body) not in _KINDS or number not in inbox:
            continue
        for wrong in _altered(body, inbox[number], None if leaf is None else begun.get(leaf)):
            yield f"event {event.seq} ({event.type}) is by message {number}, and {wrong}"


def _altered(body: e.Body, message: Message, begun: e.Body | None) -> Iterator[str]:
    """What is different between an event and the message that it names."""
    if message.kind != _KINDS[type(body)]:
        yield f"that one is of kind {message.kind}"
        return
    match body:
        case e.SignalReceived():
            signal = msgspec.json.decode(message.body, type=Signal)
            yield from _unlike("payload", _value(body.payload), _value(signal.payload))
            yield from _unlike("name", getattr(begun, "name", signal.name), signal.name)
        case e.InteractionResponse():
            answer = _value(msgspec.json.decode(message.body, type=AnswerMessage).answer)
            yield from _unlike("answer", _value(body.answer), answer)
            options = begun.question.options if isinstance(begun, e.InteractionRequested) else None
            if not isinstance(answer, str) or (options and answer not in options):
                yield f"{answer!r} does not fit the question, whose options are {options}"
        case e.ChildFinished():
            end = msgspec.json.decode(message.body, type=ChildEnd)
            yield from _unlike("child", body.child, end.child)
            yield from _unlike("status", body.status, end.status)
            yield from _unlike("result", _value(body.result), _value(end.result))
            yield from _unlike("error", body.error, end.error)
        case e.CancelRequested():
            yield from _unlike("reason", body.reason, msgspec.json.decode(message.body, type=Reason).reason)
        case e.Paused():
            asked = msgspec.json.decode(message.body, type=Reason)
            yield from _unlike("reason", body.detail, asked.reason)
            yield from _unlike("end by itself", body.expires_at is not None, asked.hold_s is not None)
        case e.Resumed():
            yield from _unlike("version", body.version, msgspec.json.decode(message.body, type=Reason).version)
    if isinstance(body, e.InteractionResponse | e.CancelRequested | e.Paused | e.Resumed):
        yield from _unlike("sender", body.by, message.by)


def _unlike(what: str, recorded: object, sent: object) -> Iterator[str]:
    if recorded != sent:
        yield f"its {what} is {recorded!r}, and not {sent!r}"


def _value(stored: msgspec.Raw) -> Any:
    return msgspec.json.decode(stored)


def parts_end_as_what_they_began(found: Evidence) -> Iterator[str]:
    """A step ends as a step, with the number of the attempt that began last; and so all others."""
    begun: dict[str, e.Body] = {}
    attempts: dict[str, int] = {}
    for event, _ in walked(found.log):
        body, leaf = event.body, name_of(event.body)
        if leaf is None:
            continue
        if type(body) in _ENDS:
            begun[leaf] = body
            attempts[leaf] = body.attempt if isinstance(body, _ATTEMPTS) else 1
        elif leaf in begun and not isinstance(body, _ENDS[type(begun[leaf])]):
            yield f"event {event.seq} is {event.type} of {leaf}, which began as {e.event_name(type(begun[leaf]))}"
        elif getattr(body, "attempt", None) not in (None, attempts.get(leaf)):
            yield f"event {event.seq} ({event.type}) is about an attempt of {leaf} that did not begin last"


def steps_give_what_they_were_asked_for(found: Evidence) -> Iterator[str]:
    """All attempts of an effect have the same arguments and key; and a step of these programs returns its `id`."""
    calls: dict[tuple[str, int], tuple[Any, str]] = {}
    asked: dict[str, Any] = {}
    for event in found.log:
        body = event.body
        if isinstance(body, e.StepStarted | e.ModuleStarted) and not body.group:
            leaf, arguments = old_name(body.leaf), _value(body.args)
            effect = (leaf, times_redone(found.log[: event.seq], leaf))
            if calls.setdefault(effect, (arguments, body.key)) != (arguments, body.key) and not _anew(found.log, event):
                yield f"event {event.seq}: {body.leaf} is called with {arguments} ({body.key}), first: {calls[effect]}"
            asked[leaf] = arguments.get("id") if isinstance(arguments, dict) else None
        elif isinstance(body, e.StepCompleted | e.ModuleCompleted):
            wanted = asked.get(old_name(body.leaf))
            if wanted is not None and _value(body.result) != wanted:
                yield f"event {event.seq}: {body.leaf} was to give {wanted!r}, and gave {_value(body.result)!r}"


def only_what_raises_fails(found: Evidence) -> Iterator[str]:
    """A step fails as its body failed, and a compensation of these programs only for an `id` that ends with `x`."""
    asked: dict[str, str] = {}
    for event in found.log:
        body = event.body
        if isinstance(body, e.StepStarted) and body.compensate:
            asked[old_name(body.leaf)] = _asked_id(body)
        elif isinstance(body, e.CompensationFailed) and not asked.get(old_name(body.leaf), "").endswith("x"):
            yield f"event {event.seq}: {body.leaf} could not be undone: {body.error.type}: {body.error.message}"
        elif isinstance(body, _FAILS) and body.error.type not in _RAISED:
            yield f"event {event.seq}: {body.leaf} failed by itself: {body.error.type}: {body.error.message}"


def _anew(log: list[e.Event], event: e.Event) -> bool:
    """Whether a recovery branched before: what the code then asks for may rest on other times."""
    return any(isinstance(each.body, e.BranchCreated) for each in log[: event.seq])


def failures_name_their_cause(found: Evidence) -> Iterator[str]:
    """A run that failed names the step or the child that failed; one that was cancelled names who wanted that and why.

    A spec has no code that could catch a failure, so its end names none.
    """
    reason: str | None = None
    own = {declined_by(part.id) for part in parts(found.program) if part.op == "decline"}
    for event, seen in walked(found.log):
        body = event.body
        if isinstance(body, e.CancelRequested):
            reason = body.reason
        elif isinstance(body, e.WorkflowCancelled):
            if body.reason != reason and body.reason not in own:
                yield f"event {event.seq}: it was cancelled because of {body.reason!r}, and was asked to for {reason!r}"
            if any(isinstance(each.body, e.CompensationFailed) for each in seen):
                yield f"event {event.seq}: it is called cancelled, though something of it could not be undone"
            for failed in _not_got_over(found.program, seen):
                yield f"event {event.seq}: it is called cancelled, and {failed} failed in its clean-up"
        elif isinstance(body, e.WorkflowFailed):
            if body.error.type == "CancelledError":
                yield f"event {event.seq}: a cancellation is recorded as a failure"
            yield from _causeless(found, event, body, seen)
            yield from _untold(event, body, seen)


def _not_got_over(program: Node, seen: list[e.Event]) -> list[str]:
    """The clean-ups of a program that failed: such an error ends the run, also one that is cancelled."""
    sour = {f"{part.id}-end" for part in parts(program) if part.op == "cleanup" and part.fails > RETRIES}
    asked = {each.body.leaf: _asked_id(each.body) for each in seen if isinstance(each.body, e.StepStarted)}
    failed = (each.body.leaf for each in seen if isinstance(each.body, e.StepFailed))
    return [leaf for leaf in failed if asked.get(leaf) in sour]


def _asked_id(started: e.StepStarted) -> str:
    """The `id` that a step was called with. A step of a spec whose modules do the work is called with nothing."""
    given = _value(started.args)
    return str(given.get("id")) if isinstance(given, dict) else ""


def _untold(event: e.Event, body: e.WorkflowFailed, seen: list[e.Event]) -> Iterator[str]:
    """What could not be undone stands in the error that ends the run."""
    for leaf in (each.body.leaf for each in seen if isinstance(each.body, e.CompensationFailed)):
        if leaf not in body.error.message:
            yield f"event {event.seq}: {leaf} could not be undone, and the error does not say so: {body.error.message}"


def _causeless(found: Evidence, event: e.Event, body: e.WorkflowFailed, seen: list[e.Event]) -> Iterator[str]:
    if found.program.op == "spec" or body.error.type in ("RecoveryRefused", "CompensationFailed"):
        return
    steps = {old_name(each.body.leaf) for each in seen if isinstance(each.body, e.StepFailed)}
    ends = [each.body for each in seen if isinstance(each.body, e.ChildFinished)]
    kin = {end.child for end in ends if end.status != "completed"}
    # A step that another worker executed is a child, too.
    steps |= {old_name(end.leaf) for end in ends if end.status != "completed"}
    if body.cause_leaf is not None and old_name(body.cause_leaf) not in steps:
        yield f"event {event.seq}: the failure of {body.cause_leaf} ended it, and that did not fail"
    if body.cause_child is not None and body.cause_child not in kin:
        yield f"event {event.seq}: the failure of {body.cause_child} ended it, and that did not fail"
    if body.cause_leaf is None and body.cause_child is None and (steps or kin):
        yield f"event {event.seq}: it failed ({body.error.type}), and names neither a step nor a child"


CONTENTS: dict[str, Check] = {
    "what was sent is what arrives": what_was_sent_is_what_arrives,
    "parts end as what they began": parts_end_as_what_they_began,
    "steps give what they were asked for": steps_give_what_they_were_asked_for,
    "only what raises fails": only_what_raises_fails,
    "failures name their cause": failures_name_their_cause,
}
