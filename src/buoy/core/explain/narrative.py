"""Narrative: the explanation of one run before evidence, and advice that several explanations share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from buoy.core.advice import Advice, Blank
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain import phrases
from buoy.core.explain.phrases import REMOTE_STEP, Wording
from buoy.core.log.document import OpenLeaf
from buoy.core.log.inbox_room import may_be_full
from buoy.core.spec.model import is_spec


class Narrative(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one run before evidence."""

    headline: str
    now: str
    wrong: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    you_can: tuple[Advice, ...] = ()


Teller = Callable[[Facts, Wording], Narrative]


def under_way(facts: Facts) -> str:
    """The steps and compensations that execute, or executed when their process ended."""
    return phrases.listed([phrases.leaf_text(each) for each in phrases.active_leaves(facts.document)])


def stops(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to stop it. A run that is being cancelled already needs no second request."""
    run_id = facts.document.run_id
    pause = words.advise("pause it", "pause", run_id)
    if facts.document.cancel_requested:
        return (pause,)
    return (pause, words.advise("cancel it", "cancel", run_id))


def answered(facts: Facts) -> frozenset[str]:
    """The questions whose answer is still unread in the inbox."""
    return frozenset(each.about for each in facts.messages if each.kind == "answer")


def answers(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to answer each open question."""
    done = answered(facts)
    asked = [each for each in phrases.questions(facts.document) if each.question_id not in done]
    return tuple(_answer(facts, each, words) for each in asked)


def _answer(facts: Facts, leaf: OpenLeaf, words: Wording) -> Advice:
    """How to answer that question."""
    assert leaf.question is not None
    which = ("--question", leaf.question_id or "") if len(phrases.questions(facts.document)) > 1 else ()
    example = phrases.answer_words(leaf.question)
    return words.advise(f"answer {leaf.name!r}", "answer", facts.document.run_id, *example, *which)


def signals(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to send the signals that it waits for."""
    waits = [each for each in facts.document.open if each.kind == "signal"]
    return tuple(words.advise("send it", "signal", facts.document.run_id, each.name) for each in waits)


def useful(advice: Iterable[Advice], facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """Without a second request to cancel while the first waits, and without signals that a full inbox refuses.

    With how to see the log, if it is readable.
    """
    run_id = facts.document.run_id
    cancels = any(each.kind == "cancel" for each in facts.messages)
    again, full = words.command("cancel", run_id), bool(full_inbox(facts))
    kept = [each for each in advice if not (cancels and each.command == again) and not (full and each.kind == "signal")]
    if facts.unreadable is None:
        kept.append(words.advise("see all that happened", "events", run_id))
    return tuple(kept)


def full_inbox(facts: Facts) -> tuple[str, ...]:
    """That signals are refused, if they are."""
    if facts.document.ended or not may_be_full(facts.unread):
        return ()
    return (f"Its inbox is full: {facts.unread:,} messages wait. Signals are refused until it has consumed some.",)


def bring_back(facts: Facts, words: Wording, action: str = "resume") -> tuple[Advice, ...]:
    """How to recover an abandoned run now, without waiting for a sweeper. `action`: what its policy allows."""
    run_id = facts.document.run_id
    look = words.advise("see first what that would do", "recover", run_id, "--dry-run")
    resume, recover = ("resume", run_id), ("recover", run_id)
    match action:
        case "resume" if facts.holder is None and facts.due_at is not None:
            return words.advise("check it once more, and see who could take it", *resume), look
        case "resume":
            return words.advise("put it into its queue now, for the next free worker", *resume), look
        case "hold":
            return words.advise("continue it anyway, if you judge that it is safe", *resume), look
        case "skip":
            return ()
        case "quarantine":
            return words.advise("quarantine it now", *recover), look
        case _:
            return words.advise(f"do now what its policy says ({action})", *recover), look


def served(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """What to start for a waiting run that no live worker could take."""
    if facts.holder is not None or what_is_missing(facts.document, facts.runners) is None:
        return ()
    return take_up(facts, words)


def take_up(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """What to start to continue a run: a worker if none can drive it, or a process of its own."""
    document = facts.document
    scope = _scope(facts)
    found: list[Advice] = []
    if what_is_missing(document, facts.runners) is not None:
        found.append(start_worker(facts, words))
    if document.workflow.startswith(REMOTE_STEP) or document.placement == "batch":
        return tuple(found)  # a part of another run, or jobs: a terminal does not drive it
    target = Blank("FILE.yaml" if is_spec(document.workflow) else f"FILE.py:{document.workflow}")
    here = ("run", target, *_calls(facts), "--id", document.run_id)
    return (*found, words.advise("or drive it in this terminal", *here, env=scope))


def start_worker(facts: Facts, words: Wording, *more: str) -> Advice:
    """How to start a worker that can take this run."""
    document = facts.document
    if document.placement == "batch":
        return words.advise("start a runner of its jobs", "runner", "--run", document.run_id, env=_scope(facts))
    queue = () if document.queue == "default" else ("--queue", document.queue)
    file = () if is_spec(document.workflow) else (Blank("FILE.py"),)
    command = ("worker", *file, *more, *_calls(facts), *queue)
    return words.advise(_worker_for(document.workflow), *command, env=_scope(facts))


def _worker_for(workflow: str) -> str:
    if is_spec(workflow):
        return "start a worker; for specs it needs no file"
    if workflow.startswith(REMOTE_STEP):
        return f"start a worker with the file that has step {workflow.removeprefix(REMOTE_STEP)!r}"
    return f"start a worker with the file that has workflow {workflow!r}"


def _calls(facts: Facts) -> tuple[str, ...]:
    return tuple(word for module in facts.calls for word in ("--allow-calls", module))


def _scope(facts: Facts) -> dict[str, str]:
    """The variables that put a command into the run's env and stack. The default env is named if others are in use."""
    document = facts.document
    scope = {"BUOY_ENV": document.env, "BUOY_STACK": document.stack}
    named = {name: value for name, value in scope.items() if value is not None}
    elsewhere = any(each.role == "worker" and each.env is not None for each in facts.runners)
    return {"BUOY_ENV": "", **named} if document.env is None and elsewhere else named
