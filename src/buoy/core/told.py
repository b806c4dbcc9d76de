"""Told: the words about one run, before the evidence is added, and the commands that many of them name."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import msgspec

from buoy.core import phrases
from buoy.core.document import OpenLeaf
from buoy.core.facts import Facts
from buoy.core.phrases import REMOTE_STEP, Wording
from buoy.core.spec import is_spec
from buoy.core.takers import what_is_missing


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The words about one run, before the evidence is added."""

    headline: str
    now: str
    wrong: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    you_can: tuple[str, ...] = ()


Teller = Callable[[Facts, Wording], Told]


def under_way(facts: Facts) -> str:
    """The steps and compensations that execute, or did when their process ended."""
    return phrases.listed([phrases.leaf_text(each) for each in phrases.active_leaves(facts.document)])


def stops(facts: Facts, words: Wording) -> tuple[str, ...]:
    """How to stop it; one that is being cancelled already need not be asked again."""
    run_id = facts.document.run_id
    pause = f"pause it: {words.command('pause', run_id)}"
    if facts.document.cancel_requested:
        return (pause,)
    return (pause, f"cancel it: {words.command('cancel', run_id)}")


def answered(facts: Facts) -> frozenset[str]:
    """The questions whose answer is in the inbox and not taken yet."""
    return frozenset(each.about for each in facts.messages if each.kind == "answer")


def answers(facts: Facts, words: Wording) -> tuple[str, ...]:
    """How to answer each question that nobody has answered."""
    done = answered(facts)
    asked = [each for each in phrases.questions(facts.document) if each.question_id not in done]
    return tuple(f"answer {each.name!r}: {answer_command(facts, each, words)}" for each in asked)


def answer_command(facts: Facts, leaf: OpenLeaf, words: Wording) -> str:
    """How to answer that question."""
    assert leaf.question is not None
    which = ("--question", leaf.question_id or "") if len(phrases.questions(facts.document)) > 1 else ()
    return words.command("answer", facts.document.run_id, *phrases.answer_words(leaf.question), *which)


def signals(facts: Facts, words: Wording) -> tuple[str, ...]:
    """How to send the signals that it waits for."""
    waits = [each for each in facts.document.open if each.kind == "signal"]
    return tuple(f"send it: {words.command('signal', facts.document.run_id, each.name)}" for each in waits)


def bring_back(facts: Facts, words: Wording, action: str = "resume") -> tuple[str, ...]:
    """How to have a run that was left behind seen to now, without waiting for a sweeper; `action`: by its policy."""
    run_id = facts.document.run_id
    look = f"see first what that would do: {words.command('recover', run_id, '--dry-run')}"
    resume, recover = words.command("resume", run_id), words.command("recover", run_id)
    match action:
        case "resume" if facts.holder is None and facts.due_at is not None:
            return f"check it once more, and see who could take it: {resume}", look
        case "resume":
            return f"put it into its queue now, for whichever worker comes: {resume}", look
        case "hold":
            return f"let it go on all the same, if you judge that it may: {resume}", look
        case "skip":
            return ()
        case "quarantine":
            return f"put it aside now: {recover}", look
        case _:
            return f"do now what its policy says ({action}): {recover}", look


def served(facts: Facts, words: Wording) -> tuple[str, ...]:
    """What to start for a run that waits, if nobody could go on with it then."""
    if facts.holder is not None or what_is_missing(facts.document, facts.runners) is None:
        return ()
    return take_up(facts, words)


def take_up(facts: Facts, words: Wording) -> tuple[str, ...]:
    """What to start so that a run goes on: a worker if none can drive it, or a process of its own."""
    document = facts.document
    scope = _scope(facts)
    found: list[str] = []
    if what_is_missing(document, facts.runners) is not None:
        queue = () if document.queue == "default" else ("--queue", document.queue)
        file = () if is_spec(document.workflow) else ("FILE.py",)
        command = scope + words.command("worker", *file, *_calls(facts), *queue)
        found.append(f"{_worker_for(document.workflow)}: {command}")
    if document.workflow.startswith(REMOTE_STEP):
        return tuple(found)  # a part of another run: only a worker takes it
    target = "FILE.yaml" if is_spec(document.workflow) else f"FILE.py:{document.workflow}"
    here = scope + words.command("run", target, *_calls(facts), "--id", document.run_id)
    return (*found, f"or drive it in this terminal: {here}")


def _worker_for(workflow: str) -> str:
    if is_spec(workflow):
        return "start a worker; for specs it needs no file"
    if workflow.startswith(REMOTE_STEP):
        return f"start a worker with the file that has step {workflow.removeprefix(REMOTE_STEP)!r}"
    return f"start a worker with the file that has workflow {workflow!r}"


def _calls(facts: Facts) -> tuple[str, ...]:
    return tuple(word for module in facts.calls for word in ("--allow-calls", module))


def _scope(facts: Facts) -> str:
    """What makes a command one of the run's own env and stack; the default env is named where others are in use."""
    document = facts.document
    scope = {"BUOY_ENV": document.env, "BUOY_STACK": document.stack}
    named = "".join(f"{name}={shlex.quote(value)} " for name, value in scope.items() if value is not None)
    elsewhere = any(each.role == "worker" and each.env is not None for each in facts.runners)
    return f"BUOY_ENV= {named}" if document.env is None and elsewhere else named
