"""What each status means in words, for a run with which nothing is wrong. `explain` adds health and evidence."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from buoy.core import phrases
from buoy.core.document import OpenLeaf
from buoy.core.facts import Facts, what_is_missing
from buoy.core.lifecycle import Status
from buoy.core.phrases import Wording
from buoy.core.time_text import in_words


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The words about one run, before the evidence is added."""

    headline: str
    now: str
    wrong: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    you_can: tuple[str, ...] = ()


Teller = Callable[[Facts, Wording], Told]


def _pending(facts: Facts, words: Wording) -> Told:
    document = facts.document
    since = words.past(document.created_at, facts.now)
    return Told(
        headline=f"{document.run_id} is queued and has not begun.",
        now=f"It waits in queue {document.queue!r} for a worker that knows {document.workflow!r}, since {since}.",
        next=("A live worker takes it in turn.",),
        you_can=(f"cancel it: {words.command('cancel', document.run_id)}",),
    )


def _running(facts: Facts, words: Wording) -> Told:
    document = facts.document
    active = phrases.active_leaves(document)
    busy = phrases.listed([phrases.leaf_text(each) for each in active])
    lines = [f"{phrases.leaf_text(each)} since {words.past(each.since, facts.now)}" for each in active]
    if facts.progress is not None:
        lines.append(f"progress: {phrases.progress_text(facts.progress)} {in_words(facts.now - facts.progress.at)} ago")
    if facts.holder is not None:
        lines.append(f"driven by {phrases.runner_text(facts.holder)}")
    lines += _cancel_note(facts)
    return Told(
        headline=f"{document.run_id} is running {busy}." if busy else f"{document.run_id} is running its own code.",
        now="; ".join(lines) or "Its workflow code is between two steps.",
        next=("When the step ends, its result is recorded and the workflow goes on.",),
        you_can=(*_answers(facts, words), *_stops(facts, words)),
    )


def _cancel_note(facts: Facts) -> list[str]:
    return ["a cancellation was asked for, and its code cleans up"] if facts.document.cancel_requested else []


def _stops(facts: Facts, words: Wording) -> tuple[str, ...]:
    run_id = facts.document.run_id
    return (f"pause it: {words.command('pause', run_id)}", f"cancel it: {words.command('cancel', run_id)}")


def _compensating(facts: Facts, words: Wording) -> Told:
    told = _running(facts, words)
    return msgspec.structs.replace(
        told,
        headline=f"{facts.document.run_id} is undoing what its completed steps did.",
        next=("When all is undone, the run ends.",),
    )


def _answers(facts: Facts, words: Wording) -> tuple[str, ...]:
    asked = phrases.questions(facts.document)
    return tuple(f"answer {each.name!r}: {answer_command(facts, each, words)}" for each in asked)


def answer_command(facts: Facts, leaf: OpenLeaf, words: Wording) -> str:
    """How to answer that question."""
    assert leaf.question is not None
    which = ("--question", leaf.question_id or "") if len(phrases.questions(facts.document)) > 1 else ()
    return words.command("answer", facts.document.run_id, *phrases.answer_words(leaf.question), *which)


def _awaiting_input(facts: Facts, words: Wording) -> Told:
    asked = phrases.questions(facts.document)
    lines = [
        f"{each.name!r} (id {each.question_id}), asked {words.past(each.since, facts.now)}; "
        f"expects {phrases.expected_text(each.question)}"
        for each in asked
        if each.question is not None
    ]
    many = f"{len(asked)} answers" if len(asked) > 1 else f"an answer: {asked[0].name}" if asked else "an answer"
    return Told(
        headline=f"{facts.document.run_id} waits for {many}",
        now="; ".join(lines),
        next=_woken(facts, "It goes on as soon as the answer is there, however long that takes."),
        you_can=_answers(facts, words),
    )


def _waiting_signal(facts: Facts, words: Wording) -> Told:
    waits = [each for each in facts.document.open if each.kind == "signal"]
    names = phrases.listed([repr(each.name) for each in waits])
    lines = []
    for each in waits:
        until = "with no time-out" if each.due_at is None else f"until {words.future(each.due_at, facts.now)}"
        lines.append(f"{phrases.leaf_text(each)} since {words.past(each.since, facts.now)}, {until}")
    run_id = facts.document.run_id
    late = [each.due_at for each in waits if each.due_at is not None]
    timed = (f"If none comes, the wait times out {words.future(min(late), facts.now)}.",) if late else ()
    return Told(
        headline=f"{run_id} waits for signal {names}.",
        now="; ".join(lines),
        next=(*_woken(facts, "It goes on as soon as the signal is there."), *timed),
        you_can=tuple(f"send it: {words.command('signal', run_id, each.name)}" for each in waits),
    )


def _waiting(facts: Facts, words: Wording) -> Told:
    document = facts.document
    lines = [_wait_line(each, facts, words) for each in document.open]
    retrying = [each for each in document.open if each.retrying]
    if retrying:
        first = retrying[0]
        headline = f"{document.run_id} waits for the next try of step {first.name}: attempt {first.attempt} failed."
    elif document.wake_at is not None:
        headline = f"{document.run_id} sleeps until {words.future(document.wake_at, facts.now)}."
    else:
        headline = f"{document.run_id} waits for {phrases.listed([phrases.leaf_text(each) for each in document.open])}."
    when = "" if document.wake_at is None else f" at {words.future(document.wake_at, facts.now)}"
    return Told(
        headline=headline,
        now="; ".join(lines),
        next=_woken(facts, f"It goes on by itself{when}."),
        you_can=_stops(facts, words),
    )


def _wait_line(leaf: OpenLeaf, facts: Facts, words: Wording) -> str:
    due = "" if leaf.due_at is None else words.future(leaf.due_at, facts.now)
    if leaf.retrying:
        error = f" with {phrases.error_text(leaf.error)}" if leaf.error else ""
        return f"attempt {leaf.attempt} of step {leaf.name} failed{error}; attempt {leaf.attempt + 1} at {due}"
    return f"{phrases.leaf_text(leaf)} since {words.past(leaf.since, facts.now)}" + (f", due {due}" if due else "")


def _woken(facts: Facts, text: str) -> tuple[str, ...]:
    """What happens next to a waiting run; if nobody could go on with it then, that is said in advance."""
    if facts.holder is not None:
        return (text,)
    missing = what_is_missing(facts.document, facts.runners)
    return (text,) if missing is None else (text, f"But as things are, it would stay queued then: {missing}.")


def _paused(facts: Facts, words: Wording) -> Told:
    document, pause = facts.document, facts.document.pause
    run_id = document.run_id
    reason = "user" if pause is None else pause.reason
    verb = "release" if reason == "poison" else "resume"
    resume = f"let it go on: {words.command(verb, run_id)}"
    detail = "" if pause is None or pause.detail is None else pause.detail
    since = words.past(document.updated_at if pause is None else pause.at, facts.now)
    now, following, can = _PAUSES.get(reason, _PAUSES["hold"])
    by = f" by {pause.by}" if pause is not None and pause.by else ""
    return Told(
        headline=f"{run_id} is paused: {now}",
        now=f"Paused{by} {since}." + (f" {detail}" if detail else ""),
        wrong=() if reason == "user" else (detail or now,),
        next=(following, *_not_heard(facts)),
        you_can=(*([can] if can else []), resume, f"cancel it: {words.command('cancel', run_id)}"),
    )


def _not_heard(facts: Facts) -> tuple[str, ...]:
    """Somebody asked the paused run for something, and nobody is there to do it."""
    missing = what_is_missing(facts.document, facts.runners)
    if facts.holder is not None or missing is None:
        return ()
    asked = [each for each in facts.messages if each.kind in ("resume", "cancel", "pause", "jump")]
    if asked:
        names = phrases.listed([each.kind for each in asked])
        return (f"It was asked for ({names}), but nobody has read that: {missing}. It is done when a worker is there.",)
    if facts.unread:
        return (f"{phrases.counted(facts.unread, 'message')} not read yet; and {missing}, so resuming needs one.",)
    return ()


# reason -> (what, what happens next, what a person can do before resuming)
_PAUSES = {
    "user": ("somebody asked for it.", "No step starts before it is resumed; what was under way still ends.", ""),
    "version": (
        "the code of the workflow has changed, and the run no longer fits.",
        "Nothing before it is taken up with the version of the code that it began with, or with one that fits.",
        "bring back the code that the run began with, or make the new code fit what the log has; steps that were only "
        "renamed can be mapped (see the command migrate)",
    ),
    "nondeterminism": (
        "its code did not do again what its log says.",
        "Nothing: a person must look at the workflow's code.",
        "correct the code so that it does the same on every replay (time, chance and I/O belong in steps)",
    ),
    "poison": (
        "it ended the processes that drove it, again and again.",
        "Nothing: it is kept apart so that it cannot do more harm.",
        "correct the step that is named",
    ),
    "hold": ("it is held for a person to look at.", "Nothing before somebody resumes it.", ""),
}


def _interrupted(facts: Facts, words: Wording) -> Told:
    run_id, stop = facts.document.run_id, facts.story.interrupted
    by = "" if stop is None else f" by runner {stop.runner}, which stopped on {stop.signal}"
    at = facts.document.updated_at if facts.story.interrupted_at is None else facts.story.interrupted_at
    missing = what_is_missing(facts.document, facts.runners)
    advice = phrases.worker_advice(facts, words)
    here = words.command("run", f"FILE.py:{facts.document.workflow}", "--id", run_id)
    return Told(
        headline=f"{run_id} was interrupted and is queued to go on.",
        now=f"It was given back in good order{by}, {words.past(at, facts.now)}. No step is under way.",
        next=(f"Nothing before a worker is there: {missing}." if missing else "A live worker takes it in turn.",),
        you_can=(*([advice] if advice else []), f"or drive it in this terminal: {here}"),
    )


def _completed(facts: Facts, words: Wording) -> Told:
    document = facts.document
    took = in_words(document.updated_at - document.created_at)
    return Told(
        headline=f"{document.run_id} has completed.",
        now=f"It ended {words.past(document.updated_at, facts.now)}, {took} after it was created.",
        next=("Nothing: it is over.",),
        you_can=(f"read its result: {words.command('result', document.run_id)}",),
    )


def _failed(facts: Facts, words: Wording) -> Told:
    document, failed = facts.document, facts.story.failed
    error = document.error
    what = "no reason was recorded" if error is None else phrases.error_text(error)
    times = "" if failed is None else phrases.counted(failed.attempts, "attempt")
    step = () if failed is None else (f"the step that failed last is {failed.leaf}, after {times}",)
    trace = () if error is None else phrases.traceback_lines(error)
    run_id = document.run_id
    return Told(
        headline=f"{run_id} has failed: {what}",
        now=f"It ended {words.past(document.updated_at, facts.now)}.",
        wrong=(what,),
        evidence=(*step, *trace),
        next=("Nothing: it is over, unless somebody tries it again.",),
        you_can=(
            f"correct the cause, then try it again from the step that failed: {words.command('retry', run_id)}",
            f"see first what would run again: {words.command('retry', run_id, '--dry-run')}",
        ),
    )


def _cancelled(facts: Facts, words: Wording) -> Told:
    document, asked = facts.document, facts.story.cancel
    why = "" if document.error is None else f": {document.error.message}"
    by = f" {asked.by} asked for it." if asked is not None and asked.by else ""
    return Told(
        headline=f"{document.run_id} was cancelled{why}",
        now=f"It ended {words.past(document.updated_at, facts.now)}.{by}",
        next=("Nothing: it is over.",),
    )


TELLERS: dict[Status, Teller] = {
    Status.PENDING: _pending,
    Status.RUNNING: _running,
    Status.AWAITING_INPUT: _awaiting_input,
    Status.WAITING_SIGNAL: _waiting_signal,
    Status.WAITING: _waiting,
    Status.COMPENSATING: _compensating,
    Status.PAUSED: _paused,
    Status.INTERRUPTED: _interrupted,
    Status.COMPLETED: _completed,
    Status.FAILED: _failed,
    Status.CANCELLED: _cancelled,
}
