"""Conduct: who may have done what, and how often. Invariants about effects, questions, recoveries and scope.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from buoy.core import events as e
from buoy.core.lifecycle import TERMINAL, Status
from buoy.core.lineage import visible
from buoy.core.state import fold
from buoy.engine.messages import Answer
from buoy.testing.sim.invariants import CHECKS, Check, Evidence
from buoy.testing.sim.witness import Violation


def keys_tell_effects_apart(found: Evidence) -> Iterator[str]:
    """One key for all attempts of an effect, whoever makes them; a new one when somebody called it back."""
    keys: dict[tuple[str, int], str] = {}
    for body in (each for each in found.bodies if each.what == "start"):
        key = keys.setdefault((body.leaf, body.redone), body.key)
        if key != body.key:
            yield f"{body.leaf} ran under the keys {key} and {body.key}"
    by_key: dict[str, tuple[str, int]] = {}
    for effect, key in keys.items():
        if by_key.setdefault(key, effect) != effect:
            yield f"key {key} was used for {by_key[key]} and again for {effect}"


def completed_steps_did_run(found: Evidence) -> Iterator[str]:
    ran = {(body.leaf, body.attempt) for body in found.bodies if body.what == "start"}
    starts, kinds = e.StepStarted | e.ModuleStarted, e.StepCompleted | e.ModuleCompleted
    groups = {each.body.leaf for each in found.log if isinstance(each.body, starts) and each.body.group}
    for event in found.log:
        body = event.body
        if isinstance(body, kinds) and body.leaf not in groups and (body.leaf, body.attempt) not in ran:
            yield f"event {event.seq} says that {body.leaf} completed, but its body never ran"


def effects_are_undone_in_reverse(found: Evidence) -> Iterator[str]:
    """A run that failed or was cancelled has undone what can be undone, once, the last first; another one nothing."""
    for event in found.log:
        if isinstance(event.body, e.ENDINGS):
            yield from _undone(found, found.log[: event.seq])


def _undone(found: Evidence, log: list[e.Event]) -> Iterator[str]:
    """Judged at each end that the run ever had, on the lineage of that moment."""
    seen, status = visible(log), fold(found.state.run_id, log).status
    able = {one.body.leaf for one in seen if isinstance(one.body, e.StepStarted) and one.body.compensate}
    done = [one.body.leaf for one in seen if isinstance(one.body, e.StepCompleted) and one.body.leaf in able]
    kinds = e.CompensationCompleted | e.CompensationFailed
    undone = [one.body.leaf for one in seen if isinstance(one.body, kinds)]
    wanted = done[::-1] if status in (Status.FAILED, Status.CANCELLED) else []
    if status in TERMINAL and undone != wanted:
        yield f"at event {len(log)} it {status}; {done} had their effects, and {undone} were undone"


def questions_are_asked_once(found: Evidence) -> Iterator[str]:
    """One answer for each question, to that very question; what was answered is not open again."""
    answers: dict[str, bytes] = {}
    inbox = {message.number: message for message in found.inbox}
    for event in found.log:
        if not isinstance(event.body, e.InteractionResponse):
            continue
        body = event.body
        if answers.setdefault(body.question_id, bytes(body.answer)) != bytes(body.answer):
            yield f"event {event.seq}: question {body.question_id} has two different answers"
        message = None if body.message is None else inbox.get(body.message)
        about = None if message is None else msgspec.json.decode(message.body, type=Answer).question_id
        if about != body.question_id:
            yield f"event {event.seq} answers {body.question_id} with message {body.message}, which is about {about}"
    asked: dict[str, int] = {}
    for event in visible(found.log):
        if isinstance(event.body, e.InteractionRequested):
            if event.body.question_id in asked:
                yield f"events {asked[event.body.question_id]} and {event.seq} ask {event.body.question_id}"
            asked[event.body.question_id] = event.seq


def recoveries_are_audited(found: Evidence) -> Iterator[str]:
    """Whoever takes over says on what evidence; whoever hides history says why."""
    for place, event in enumerate(found.log):
        body = event.body
        if isinstance(body, e.Claimed) and body.cause == "taken_over" and not body.evidence:
            yield f"event {event.seq}: {body.runner} took the run over on no evidence"
        if isinstance(body, e.BranchCreated):
            wanted = e.JumpRequested if body.cause in ("jump", "retry") else e.WorkflowRecovered
            near = found.log[max(place - 3, 0) : place + 4]
            if not any(isinstance(each.body, wanted) and each.body.new_branch == body.branch for each in near):
                yield f"event {event.seq}: branch {body.branch} was made, and nobody says why"


def branches_name_what_runs_again(found: Evidence) -> Iterator[str]:
    """A person was told what would run again: all that a jump hides is named, and what is kept is still there."""
    for event in found.log:
        body = event.body
        if not isinstance(body, e.BranchCreated) or body.cause not in ("jump", "retry"):
            continue
        before, after = _leaves(found.log[: event.seq - 1]), _leaves(found.log[: event.seq])
        undone = {leaf for leaf in before if leaf.endswith("!")}
        hidden = {leaf for leaf in before - after if not leaf.endswith("!") and f"{leaf}!" not in undone}
        if hidden - set(body.dropped):
            yield f"event {event.seq} hides {sorted(hidden - set(body.dropped))} and does not say so"
        if set(body.kept) - after:
            yield f"event {event.seq} promises to keep {sorted(set(body.kept) - after)}, and hides it"


def _leaves(log: list[e.Event]) -> set[str]:
    """The leaves that a log shows; with an exclamation mark those whose compensation began."""
    found: set[str] = set()
    for event in visible(log):
        leaf = e.leaf_of(event.body)
        if leaf is not None:
            found.add(f"{leaf}!" if isinstance(event.body, e.CompensationStarted) else leaf)
    return found


def nobody_acts_outside_his_scope(found: Evidence) -> Iterator[str]:
    created = found.state.created
    for event in found.log:
        body = event.body
        if created is None or not isinstance(body, e.Claimed) or body.cause == "requested":
            continue
        runner = found.runners.get(body.runner)
        if runner is None:
            yield f"event {event.seq}: claimed by {body.runner}, which was never a runner"
        elif runner.env != created.env or (created.stack is not None and runner.stack not in (None, created.stack)):
            yield f"event {event.seq}: {body.runner} of env {runner.env} drives a run of env {created.env}"
        elif body.cause != "created" and created.queue not in runner.queues:
            yield f"event {event.seq}: {body.runner} does not serve queue {created.queue}"


def only_what_ended_is_purged(found: Evidence) -> Iterator[str]:
    if found.purged and found.state.status not in TERMINAL:
        yield f"it was purged while it was {found.state.status}"


ALL_CHECKS: dict[str, Check] = {
    **CHECKS,
    "keys tell effects apart": keys_tell_effects_apart,
    "completed steps did run": completed_steps_did_run,
    "effects are undone in reverse": effects_are_undone_in_reverse,
    "questions are asked once": questions_are_asked_once,
    "recoveries are audited": recoveries_are_audited,
    "branches name what runs again": branches_name_what_runs_again,
    "nobody acts outside his scope": nobody_acts_outside_his_scope,
    "only what ended is purged": only_what_ended_is_purged,
}


def broken(found: Evidence) -> list[Violation]:
    """All that does not hold of one run."""
    return [Violation(rule, f"{found.run_id}: {text}") for rule, check in ALL_CHECKS.items() for text in check(found)]
