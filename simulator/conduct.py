"""Conduct: who may have done what, and how often. Invariants about effects, questions, recoveries and scope.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from buoy.core.log import events as e
from buoy.core.log.lifecycle import TERMINAL
from buoy.engine.run.mailbox import AnswerMessage
from simulator.evidence import Check, Evidence
from simulator.invariants import refused
from simulator.reading import UNDO, old_name, parts_of, shown, status_of, times_redone, walked


def keys_tell_effects_apart(found: Evidence) -> Iterator[str]:
    """All attempts of an effect have one key, in every process; a rewind by a person makes a new one.

    A process that was declared gone, and does not know it yet, knows of no rewind either: it executes what it had.
    """
    keys: dict[tuple[str, int], str] = {}
    for body in (each for each in found.bodies if each.what == "start" and not each.gone):
        key = keys.setdefault((old_name(body.leaf), body.redone), body.key)
        if key != body.key:
            yield f"{body.leaf} ran under the keys {key} and {body.key}"
    by_key: dict[str, tuple[str, int]] = {}
    for effect, key in keys.items():
        if by_key.setdefault(key, effect) != effect:
            yield f"key {key} was used for {by_key[key]} and again for {effect}"


def completed_steps_did_run(found: Evidence) -> Iterator[str]:
    """Each completed step ran, once for each time that a person rewound it."""
    ran = {(old_name(body.leaf), body.attempt, body.redone) for body in found.bodies if body.what == "start"}
    starts, kinds = e.StepStarted | e.ModuleStarted, e.StepCompleted | e.ModuleCompleted
    groups = {each.body.leaf for each in found.log if isinstance(each.body, starts) and each.body.group}
    for event in found.log:
        body = event.body
        if not isinstance(body, kinds) or body.leaf in groups:
            continue
        if (old_name(body.leaf), body.attempt, times_redone(found.log[: event.seq], body.leaf)) not in ran:
            yield f"event {event.seq} says that {body.leaf} completed, but its body never ran"


def effects_are_undone_in_reverse(found: Evidence) -> Iterator[str]:
    """A run that failed or was cancelled has undone what can be undone, once, the last first; another one nothing.

    A step that can be undone and has begun has ended by then, so that its effect is known.
    """
    for event in found.log:
        if isinstance(event.body, e.ENDINGS):
            yield from _undone(found, found.log[: event.seq])


def _undone(found: Evidence, log: list[e.Event]) -> Iterator[str]:
    """Judged at each end that the run ever had, on the lineage of that moment."""
    seen = shown(log)
    parts = parts_of(seen)
    status = status_of(log, seen, parts)
    able = {one.body.leaf for one in seen if isinstance(one.body, e.StepStarted) and one.body.compensate}
    done = [one.body.leaf for one in seen if isinstance(one.body, e.StepCompleted) and one.body.leaf in able]
    kinds = e.CompensationCompleted | e.CompensationFailed
    undone = [one.body.leaf for one in seen if isinstance(one.body, kinds)]
    wanted = done[::-1] if status in ("failed", "cancelled") else []
    if refused(found, log[-1].body):
        wanted = wanted[: len(undone)]  # it ends where it stood
    elif status in ("failed", "cancelled"):
        left = [leaf for leaf in able if parts[old_name(leaf)].ended is None]
        if left:
            yield f"at event {len(log)} it {status}; {left} can be undone, had begun, and have no outcome"
    if undone != wanted:
        yield f"at event {len(log)} it {status}; {done} had their effects, and {undone} were undone"


def undoing_waits_for_nothing_else(found: Evidence) -> Iterator[str]:
    """When the first effect is undone, the run has given up all that its code waited for, and all steps have ended."""
    for event, seen in walked(found.log):
        if isinstance(event.body, e.CompensationStarted):
            left = [leaf for leaf, part in parts_of(seen).items() if part.ended is None and not leaf.endswith(UNDO)]
            if left:
                yield f"event {event.seq} begins to undo {event.body.leaf}, and {left} are open"


def what_can_be_undone_comes_to_its_end(found: Evidence) -> Iterator[str]:
    """A step that can be undone is never given up: whether it had its effect must be known."""
    undoable: set[str] = set()
    for event in found.log:
        body = event.body
        if isinstance(body, e.StepStarted) and body.compensate:
            undoable.add(body.leaf)
        elif isinstance(body, e.LeafCancelled) and body.leaf in undoable:
            yield f"event {event.seq} gives up {body.leaf}, which can be undone"


def questions_are_asked_once(found: Evidence) -> Iterator[str]:
    """One answer for each question, to that very question; what was answered is not open again."""
    answers: dict[str, bytes] = {}
    askers: dict[str, set[str]] = {}
    inbox = {message.number: message for message in found.inbox}
    for event in found.log:
        if isinstance(event.body, e.InteractionRequested):
            askers.setdefault(event.body.question_id, set()).add(old_name(event.body.leaf))
        if not isinstance(event.body, e.InteractionResponse):
            continue
        body = event.body
        if old_name(body.leaf) not in askers.get(body.question_id, ()):
            yield f"event {event.seq} gives {body.leaf} the answer to {body.question_id}, which it did not ask"
        if answers.setdefault(body.question_id, bytes(body.answer)) != bytes(body.answer):
            yield f"event {event.seq}: question {body.question_id} has two different answers"
        message = None if body.message is None else inbox.get(body.message)
        about = None if message is None else msgspec.json.decode(message.body, type=AnswerMessage).question_id
        if about != body.question_id:
            yield f"event {event.seq} answers {body.question_id} with message {body.message}, which is about {about}"
    yield from _asked_again(found)
    asked: dict[str, int] = {}
    for event in shown(found.log):
        if isinstance(event.body, e.InteractionRequested):
            if event.body.question_id in asked:
                yield f"events {asked[event.body.question_id]} and {event.seq} ask {event.body.question_id}"
            asked[event.body.question_id] = event.seq


def _asked_again(found: Evidence) -> Iterator[str]:
    """In the whole log, hidden events included: a rewind that drops an answer asks another question.

    A spec that begins again records its question once more, and the message that answered it answers it again.
    """
    answered: dict[str, e.Event] = {}
    for event in found.log:
        body = event.body
        if isinstance(body, e.InteractionResponse):
            before = answered.setdefault(body.question_id, event).body
            if isinstance(before, e.InteractionResponse) and before.message != body.message:
                yield f"event {event.seq} answers {body.question_id} by message {body.message}, not {before.message}"
        elif isinstance(body, e.InteractionRequested) and body.question_id in answered and found.program.op != "spec":
            yield f"event {event.seq} asks {body.question_id}, which event {answered[body.question_id].seq} answered"


def recoveries_are_audited(found: Evidence) -> Iterator[str]:
    """A takeover names its evidence, and a branch that hides history names its reason."""
    for place, event in enumerate(found.log):
        body = event.body
        if isinstance(body, e.Claimed) and body.cause == "taken_over" and not body.evidence:
            yield f"event {event.seq}: {body.runner} took the run over on no evidence"
        if isinstance(body, e.Claimed) and body.cause == "taken_over" and body.evidence.get("finding", "H1") != "H1":
            yield f"event {event.seq}: a remedy for {body.evidence['finding']} is counted as the death of an owner"
        if isinstance(body, e.BranchCreated):
            wanted = e.JumpRequested if body.cause in ("jump", "retry") else e.WorkflowRecovered
            near = found.log[max(place - 3, 0) : place + 4]
            if not any(isinstance(each.body, wanted) and each.body.new_branch == body.branch for each in near):
                yield f"event {event.seq}: branch {body.branch} was made, and no event says why"
        if isinstance(body, e.WorkflowRecovered):
            missing = [name for name in ("reason", "finding", "evidence", "policy", "actor") if not getattr(body, name)]
            if missing:
                yield f"event {event.seq}: it was recovered, and nothing is said of {', '.join(missing)}"


def branches_name_what_runs_again(found: Evidence) -> Iterator[str]:
    """A branch by a person names all that it hides and runs again, and all that it keeps is still there."""
    for event in found.log:
        body = event.body
        if not isinstance(body, e.BranchCreated) or body.cause not in ("jump", "retry"):
            continue
        before, after = _leaves(found.log[: event.seq - 1]), _leaves(found.log[: event.seq])
        undone = {leaf for leaf in before if leaf.endswith("!")}
        hidden = {leaf for leaf in before - after if not leaf.endswith("!") and f"{leaf}!" not in undone}
        kept, dropped = ({old_name(leaf) for leaf in leaves} for leaves in (body.kept, body.dropped))
        if hidden - dropped:
            yield f"event {event.seq} hides {sorted(hidden - dropped)} and does not say so"
        if kept - after:
            yield f"event {event.seq} promises to keep {sorted(kept - after)}, and hides it"


def _leaves(log: list[e.Event]) -> set[str]:
    """The leaves that a log shows; with an exclamation mark those whose compensation began."""
    found: set[str] = set()
    for event in shown(log):
        leaf = e.leaf_of(event.body)
        if leaf is not None:
            found.add(f"{old_name(leaf)}!" if isinstance(event.body, e.CompensationStarted) else old_name(leaf))
    return found


def no_process_acts_outside_its_scope(found: Evidence) -> Iterator[str]:
    """Who acts by itself does so with the runs of its stack and env only; a person may do as he likes."""
    created = found.state.created
    if created is None:
        if found.foreign is not None and found.document != found.foreign:
            yield f"another system wrote {found.foreign}, no process took it in, and it is {found.document}"
        return
    for who, what in _acts_of(found):
        reach = found.scopes.get(who)
        if reach is None:
            continue
        other_stack = None not in (reach.stack, created.stack) and reach.stack != created.stack
        if other_stack or reach.env != created.env:
            mine, its = f"stack {reach.stack}, env {reach.env}", f"stack {created.stack}, env {created.env}"
            yield f"{who} of {mine} {what} of a run of {its}"
    writer = found.writers.get(found.log[0].nonce or "")
    if found.foreign is not None and not (writer in found.scopes and found.scopes[writer].adopt):
        yield f"another system wrote it, and {writer} took it in, which its options do not allow"
    yield from _drivers(found, created)


def _acts_of(found: Evidence) -> Iterator[tuple[str, str]]:
    """Who did what."""
    for event in found.log:
        if event.nonce is not None:
            yield found.writers.get(event.nonce, ""), f"wrote event {event.seq}, {event.type},"
    for sent in found.sends:
        yield sent.by, f"sent message {sent.number}, {sent.kind},"
    for touched in found.touches:
        yield touched.by, touched.how


def _drivers(found: Evidence, created: e.WorkflowCreated) -> Iterator[str]:
    """Who claims a run to drive it is a runner, and serves its queue. A remedy only puts it back into the queue."""
    for event in found.log:
        body = event.body
        if not isinstance(body, e.Claimed) or body.cause == "requested":
            continue
        runner = found.runners.get(body.runner)
        if runner is None:
            yield f"event {event.seq}: claimed by {body.runner}, which was never a runner"
        elif body.cause != "created" and "finding" not in body.evidence and created.queue not in runner.queues:
            yield f"event {event.seq}: {body.runner} does not serve queue {created.queue}"


def only_what_ended_is_purged(found: Evidence) -> Iterator[str]:
    if found.purged and found.state.status not in TERMINAL:
        yield f"it was purged while it was {found.state.status}"


CONDUCT: dict[str, Check] = {
    "keys tell effects apart": keys_tell_effects_apart,
    "completed steps did run": completed_steps_did_run,
    "effects are undone in reverse": effects_are_undone_in_reverse,
    "undoing waits for nothing else": undoing_waits_for_nothing_else,
    "what can be undone comes to its end": what_can_be_undone_comes_to_its_end,
    "questions are asked once": questions_are_asked_once,
    "recoveries are audited": recoveries_are_audited,
    "branches name what runs again": branches_name_what_runs_again,
    "no process acts outside its scope": no_process_acts_outside_its_scope,
    "only what ended is purged": only_what_ended_is_purged,
}
