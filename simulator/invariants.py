"""Invariants: what must hold of a run after everything that happened to it. Pure: evidence in, complaints out.

Each of them can fail, and a test shows it. Those about effects, questions and who did what are in `conduct`; those that
must be judged at the moment itself (bodies, acknowledgements) are in `witness`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from buoy.core.limits import POISON_CAP
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.state import State
from buoy.engine.run.mailbox import AnswerMessage, Signal
from buoy.ports.records import Message
from simulator.accounts import misread
from simulator.evidence import Check, Evidence, text_of
from simulator.mail import unread
from simulator.programs import Declines, Fails, expected


def numbers_have_no_gaps(found: Evidence) -> Iterator[str]:
    numbers = [event.seq for event in found.log]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the log has the numbers {numbers}"


def log_only_grows(found: Evidence) -> Iterator[str]:
    """What was in the log once is there still, as it was."""
    for there, before in zip(found.log, found.earlier, strict=False):
        if there != before:
            yield f"event {before.seq} was {text_of(before)}, and now is {text_of(there)}"
            return
    if len(found.log) < len(found.earlier):
        yield f"the log had {len(found.earlier)} events, and now has {len(found.log)}"


def log_is_sound(found: Evidence) -> Iterator[str]:
    """Every event had its arrow, every outcome its open leaf, every message one consumer."""
    yield from found.state.anomalies


def one_writer_at_a_time(found: Evidence) -> Iterator[str]:
    """Between two claims only the first claimer's process appends."""
    owner: str | None = None
    for place, event in enumerate(found.log):
        if event.nonce is None:
            continue
        commit = _commit_from(found.log, place)
        claims = [each.body.runner for each in commit if isinstance(each.body, e.Claimed)]
        writer = found.writers.get(event.nonce)
        owner = claims[0] if claims else owner
        if writer is None:
            yield f"event {event.seq} was written by no process (nonce {event.nonce})"
        elif owner is not None and writer != owner:
            yield f"event {event.seq} ({event.type}) was appended by {writer} while {owner} had the claim"


def _commit_from(log: list[e.Event], place: int) -> list[e.Event]:
    end = place + 1
    while end < len(log) and log[end].nonce is None:
        end += 1
    return log[place:end]


def acknowledged_commits_are_there(found: Evidence) -> Iterator[str]:
    by_seq = {event.seq: event for event in found.log}
    for commit in found.commits:
        first, last = by_seq.get(commit.first_seq), by_seq.get(commit.last_seq)
        if first is None or first.nonce != commit.nonce or last is None:
            yield f"events {commit.first_seq} to {commit.last_seq} were acknowledged to {commit.writer} and are lost"


def acknowledged_starts_are_there(found: Evidence) -> Iterator[str]:
    if found.started and (not found.log or (found.document is None and not found.purged)):
        yield "its start was acknowledged, but the store does not have it"


def waits_for_something_real(found: Evidence) -> Iterator[str]:
    """At rest a run has ended, is paused, or waits for something that was never sent."""
    yield from restless(found.state, unread(found.log, found.inbox))


def restless(state: State, messages: Sequence[Message]) -> Iterator[str]:
    """Why a run cannot stay as it is."""
    if state.status is None or state.status in TERMINAL:
        return
    for message in messages:
        reason = _wanted(state, message)
        if reason:
            yield reason
    if state.pause is not None and state.pause.expires_at is not None:
        yield f"its pause ends at {state.pause.expires_at:.3f}"
    if state.status is Status.PAUSED:
        return
    if state.status in (Status.RUNNING, Status.PENDING, Status.INTERRUPTED, Status.COMPENSATING):
        yield f"it is {state.status}"
    for leaf in state.open.values():
        if leaf.due_at is not None:
            yield f"{leaf.id} is due at {leaf.due_at:.3f}"


def _wanted(state: State, message: Message) -> str | None:
    """Why this message should have been consumed. A paused run reads only messages that can end the pause."""
    if message.kind not in ("resume", "cancel") and state.status is Status.PAUSED:
        return None
    if message.kind == "signal":
        name = msgspec.json.decode(message.body, type=Signal).name
        waits = [leaf.id for leaf in state.open.values() if leaf.kind == "signal" and leaf.name == name]
        return f"{waits[0]} waits for signal {name!r}, which is message {message.number}" if waits else None
    if message.kind == "answer":
        about = msgspec.json.decode(message.body, type=AnswerMessage).question_id
        return f"message {message.number} answers {about} and was never looked at"
    return f"message {message.number} ({message.kind}) was never looked at"


def code_and_log_agree(found: Evidence) -> Iterator[str]:
    yield from disagreements(found.log, deployed=found.deployed)


def disagreements(log: Sequence[e.Event], *, deployed: bool) -> Iterator[str]:
    """Pauses that the engine made by itself: a replay diverged, or it broke. Another release may not fit, and a run at
    whose side many processes died may be held; one whose policy is to hold, at the first time. A batch run rests
    when jobs have failed for good."""
    first = log[0].body if log else None
    holds = isinstance(first, e.WorkflowCreated) and first.policy == "hold"
    crashes = sum(isinstance(event.body, e.Claimed) and event.body.cause == "taken_over" for event in log)
    for event in log:
        reason = event.body.reason if isinstance(event.body, e.Paused) else "user"
        asked = reason in ("user", "rewind", "jobs")
        fine = asked or (reason == "version" and deployed) or (reason == "poison" and crashes >= POISON_CAP)
        fine = fine or (reason == "hold" and holds)
        if isinstance(event.body, e.Paused) and reason != "user" and not event.body.detail:
            yield f"event {event.seq}: paused for {reason}, without a detail that says why"
        if isinstance(event.body, e.Paused) and not fine:
            yield f"event {event.seq}: paused for {reason}: {event.body.detail}"


def document_is_the_folded_log(found: Evidence) -> Iterator[str]:
    if not found.log or found.purged or found.damaged_at == len(found.log):
        return
    if found.document != document(found.state):
        yield f"the document is {found.document}, the log amounts to {document(found.state)}"
    elif found.document is not None:
        yield from misread(found.log, found.document)


def result_is_the_expected_one(found: Evidence) -> Iterator[str]:
    """A fault changes when and where, never what."""
    state = found.state
    if state.status not in TERMINAL or found.cancelled or state.cancel is not None:
        return
    try:
        wanted: Any = ("completed", expected(found.program))
    except Declines:
        wanted = ("cancelled", None)
    except Fails:
        wanted = ("failed", None)
    if found.program.again and wanted[0] == "completed":
        wanted = ("completed", "as another run")
    ending = next(event.body for event in found.log if event.seq == state.ending_seq)
    if refused(found, ending):
        return
    result = msgspec.json.decode(ending.result) if isinstance(ending, e.WorkflowCompleted) else None
    if isinstance(ending, e.WorkflowCompleted) and ending.continued_as is not None:
        result = "as another run"
        if not found.ends.get(ending.continued_as):
            yield f"it continued as {ending.continued_as}, which never ended"
    if (state.status.value, result) != wanted:
        why = "" if state.error is None else f" ({state.error})"
        yield f"it {state.status} with {result}{why}; without faults it {wanted[0]} with {wanted[1]}"


def refused(found: Evidence, ending: e.Body) -> bool:
    """Whether it failed because its process died under it, and its policy is to fail then."""
    created = found.state.created
    fails = created is not None and created.policy == "fail"
    return fails and isinstance(ending, e.WorkflowFailed) and ending.error.type == "RecoveryRefused"


def endings_of(log: Sequence[e.Event]) -> list[e.Body]:
    """All ends that a log has."""
    return [event.body for event in log if isinstance(event.body, e.ENDINGS)]


def parents_record_what_became_of_their_children(found: Evidence) -> Iterator[str]:
    for event in found.log:
        body = event.body
        if isinstance(body, e.ChildStarted) and body.detach and found.state.ending_seq and body.child not in found.ends:
            yield f"event {event.seq} starts {body.child}, which does not exist"
        if isinstance(body, e.ChildFinished) and body.message is not None:
            ends = list(_ends_of_chain(found.ends, body.child))
            if not any(_as_told(body, end) for end in ends):
                yield f"event {event.seq} says that {body.child} {body.status}, but it ended with {text_of(ends)}"


def _ends_of_chain(ends: dict[str, list[e.Body]], run: str) -> Iterator[e.Body]:
    """The ends of a run. If it continued as another run, the end of that run is its end."""
    for end in ends.get(run, ()):
        if isinstance(end, e.WorkflowCompleted) and end.continued_as is not None:
            yield from _ends_of_chain(ends, end.continued_as)
        else:
            yield end


def _as_told(told: e.ChildFinished, end: e.Body) -> bool:
    if e.event_name(type(end)) != f"workflow_{told.status}":
        return False
    return not isinstance(end, e.WorkflowCompleted) or _same(end.result, told.result)


def _same(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    return bool(msgspec.json.decode(one) == msgspec.json.decode(other))


CHECKS: dict[str, Check] = {
    "numbers without gaps": numbers_have_no_gaps,
    "a log only grows": log_only_grows,
    "a sound log": log_is_sound,
    "one writer at a time": one_writer_at_a_time,
    "no acknowledged commit is lost": acknowledged_commits_are_there,
    "no acknowledged start is lost": acknowledged_starts_are_there,
    "runs end or wait for something real": waits_for_something_real,
    "code and log agree": code_and_log_agree,
    "the document is the folded log": document_is_the_folded_log,
    "parents record what became of their children": parents_record_what_became_of_their_children,
    "the result is the expected one": result_is_the_expected_one,
}
