"""Words for each status of a healthy run. `explain` adds health and evidence."""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.advice import Advice
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.explain.compensation import names as undoable
from buoy.core.explain.compensation import standing
from buoy.core.explain.ended import cancelled, cause_of, completed, failed, moved, undone_lines
from buoy.core.explain.jobs import jobs_waiting
from buoy.core.explain.narrative import (
    Narrative,
    Teller,
    answered,
    answers,
    bring_back,
    served,
    signals,
    stops,
    take_up,
)
from buoy.core.explain.paused import paused
from buoy.core.explain.phrases import Wording
from buoy.core.limits import BEAT_S, SUSPECT_AFTER_S
from buoy.core.log.document import OpenLeaf
from buoy.core.log.lifecycle import Status
from buoy.core.log.wording import error_text

_STEP_ENDS = "When the step ends, its result is recorded and the workflow continues."
_CODE_DECIDES = (
    "Its code decides what comes next: a step, a wait or its end. That takes a moment; if it takes longer, look again."
)


def _pending(facts: Facts, words: Wording) -> Narrative:
    document = facts.document
    since = words.past(document.created_at, facts.now)
    return Narrative(
        headline=f"{document.run_id} is queued and has not begun.",
        now=f"{_taker(facts)}, since {since}.",
        next=("A live worker takes it in its turn.",),
        you_can=(words.advise("cancel it", "cancel", document.run_id),),
    )


def _taker(facts: Facts) -> str:
    """Which process a run waits for that has not started."""
    document = facts.document
    if document.placement == "batch":
        owners = "a runner of its jobs, a worker, or a server that was started with --specs"
        return f"It waits for a process that drives batch runs{_of(facts)}: {owners}"
    return f"It waits in queue {document.queue!r} for a worker that knows {document.workflow!r}{_of(facts)}"


def _of(facts: Facts) -> str:
    """The env and stack that a worker needs for this run."""
    scope = {"env": facts.document.env, "stack": facts.document.stack}
    named = [f"{name} {value!r}" for name, value in scope.items() if value is not None]
    return f" and belongs to {' and '.join(named)}" if named else ""


def _running(facts: Facts, words: Wording) -> Narrative:
    document = facts.document
    active = phrases.active_leaves(document)
    busy = phrases.listed([phrases.leaf_text(each) for each in active])
    lines = [f"{phrases.leaf_text(each)} since {words.past(each.since, facts.now)}" for each in active]
    progress = phrases.current_progress(facts)
    if progress is not None:
        lines.append(f"progress: {phrases.progress_text(progress)} {in_words(facts.now - progress.at)} ago")
    if facts.holder is not None:
        lines.append(f"driven by {phrases.runner_text(facts.holder)}")
    lines += _cancel_note(facts)
    return Narrative(
        headline=f"{document.run_id} is running {busy}." if busy else f"{document.run_id} is running its own code.",
        now="; ".join(lines) or "Its workflow code is between two steps.",
        next=(_STEP_ENDS if active else _CODE_DECIDES, *_unheard(facts)),
        you_can=(*answers(facts, words), *stops(facts, words)),
    )


def _unheard(facts: Facts) -> tuple[str, ...]:
    """The owner's heartbeat is late, but not late enough to make it suspect."""
    age_s = None if facts.holder is None else facts.holder.beat_age_s
    if age_s is None or age_s <= 2 * BEAT_S:
        return ()
    return (
        f"Its process has sent no heartbeat for {in_words(age_s)}: it may be busy, stopped or suspended. After "
        f"{in_words(SUSPECT_AFTER_S)} this page says that the run may hang. Another worker takes it over only when the "
        "end of the process is proven.",
    )


def _cancel_note(facts: Facts) -> list[str]:
    return ["it was asked to cancel, and its code cleans up"] if facts.document.cancel_requested else []


def _compensating(facts: Facts, words: Wording) -> Narrative:
    narrative = _running(replace(facts, document=replace(facts.document, cancel_requested=False)), words)
    cause = cause_of(facts)
    now = "; ".join(wait_line(each, facts, words) for each in facts.document.open if each.retrying) or narrative.now
    return replace(
        narrative,
        headline=f"{facts.document.run_id} is undoing what its completed steps did.",
        now=f"{now}; because {cause}" if cause else now,
        evidence=undone_lines(facts),
        next=(*_to_be_undone(facts), "When everything is undone, the run ends.", *_unheard(facts)),
        you_can=tuple(each for each in stops(facts, words) if each.kind == "pause"),
    )


def _to_be_undone(facts: Facts) -> tuple[str, ...]:
    left = standing(facts.log or ())
    return (f"After that, still to be undone: {undoable(left)}.",) if left else ()


def _awaiting_input(facts: Facts, words: Wording) -> Narrative:
    asked, done = phrases.questions(facts.document), answered(facts)
    left = [each for each in asked if each.question_id not in done]
    lines = [
        f"{each.name!r} (id {each.question_id}), asked {words.past(each.since, facts.now)}; "
        + ("answered" if each.question_id in done else f"expects {phrases.expected_text(each.question)}")
        for each in asked
        if each.question is not None
    ]
    if asked and not left:
        return _answered(facts, words, "; ".join(lines))
    many = f"{len(left)} answers" if len(left) > 1 else f"an answer: {left[0].name}" if left else "an answer"
    return Narrative(
        headline=f"{facts.document.run_id} waits for {many}",
        now="; ".join(lines),
        next=(*_woken(facts, _until_answered(facts)), *_bounded(facts, words, "an answer")),
        you_can=(*answers(facts, words), *served(facts, words), *stops(facts, words)),
    )


def _until_answered(facts: Facts) -> str:
    ever = "" if _timers(facts) else ", however long that takes"
    return f"It continues as soon as the answer arrives{ever}."


def _timers(facts: Facts) -> list[OpenLeaf]:
    """The timers beside the wait; the time-out of the wait is one of them."""
    return [each for each in facts.document.open if each.kind == "timer" and each.due_at is not None]


def _bounded(facts: Facts, words: Wording, what: str) -> tuple[str, ...]:
    """When the code continues even if nothing comes."""
    due = min((each.due_at or 0.0, each.leaf) for each in _timers(facts)) if _timers(facts) else None
    if due is None:
        return ()
    at, leaf = due
    return (
        f"Its code also runs a timer, {leaf}, due {words.future(at, facts.now)}. Then it continues even without "
        f"{what}: a time-out around the wait ends that way.",
    )


def _answered(facts: Facts, words: Wording, lines: str) -> Narrative:
    """Every question is answered, but no worker has read the answers yet."""
    who = "A live worker" if facts.holder is None else phrases.runner_text(facts.holder)
    return Narrative(
        headline=f"{facts.document.run_id} has its answer, but no worker has read it yet.",
        now=lines,
        next=_woken(facts, f"{who[0].upper()}{who[1:]} reads it in a moment."),
        you_can=stops(facts, words),
    )


def _waiting_signal(facts: Facts, words: Wording) -> Narrative:
    waits = [each for each in facts.document.open if each.kind == "signal"]
    names = phrases.listed([repr(each.name) for each in waits])
    lines = []
    for each in waits:
        until = "with no time-out" if each.due_at is None else f"until {words.future(each.due_at, facts.now)}"
        lines.append(f"{phrases.leaf_text(each)} since {words.past(each.since, facts.now)}, {until}")
    run_id = facts.document.run_id
    late = [each.due_at for each in waits if each.due_at is not None]
    timed = (f"If none comes, the wait times out {words.future(min(late), facts.now)}.",) if late else ()
    return Narrative(
        headline=f"{run_id} waits for signal {names}.",
        now="; ".join(lines),
        next=(
            *_woken(facts, "It continues as soon as the signal arrives."),
            *timed,
            *_bounded(facts, words, "a signal"),
        ),
        you_can=(*signals(facts, words), *served(facts, words), *stops(facts, words)),
    )


def _waiting(facts: Facts, words: Wording) -> Narrative:
    document = facts.document
    if document.lots:
        return jobs_waiting(facts, words)
    lines = [wait_line(each, facts, words) for each in document.open]
    retrying = [each for each in document.open if each.retrying]
    if retrying:
        first = retrying[0]
        headline = (
            f"{document.run_id} waits for the next attempt of {phrases.retried_text(first)}: "
            f"attempt {first.attempt} failed."
        )
    elif document.wake_at is not None:
        headline = f"{document.run_id} sleeps until {words.future(document.wake_at, facts.now)}."
    else:
        headline = f"{document.run_id} waits for {phrases.listed([phrases.leaf_text(each) for each in document.open])}."
    return Narrative(
        headline=headline,
        now="; ".join(lines),
        next=_woken(facts, _continues(facts, words)),
        you_can=(*_children(facts, words), *served(facts, words), *stops(facts, words)),
    )


def _continues(facts: Facts, words: Wording) -> str:
    document = facts.document
    if document.wake_at is not None:
        return f"It continues by itself at {words.future(document.wake_at, facts.now)}."
    if any(each.kind == "child" for each in document.open):
        return f"It continues when {phrases.listed([str(each) for each in facts.children]) or 'its child'} has ended."
    return "It continues by itself."


def _children(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """Where to look while it waits for healthy children. `child_troubles` covers the others."""
    calm = [child for child in facts.children if child not in facts.child_troubles]
    return tuple(words.advise(f"see what child {child} does", "why", child) for child in calm[:3])


def wait_line(leaf: OpenLeaf, facts: Facts, words: Wording) -> str:
    """What it waits for, since when and until when."""
    due = "" if leaf.due_at is None else words.future(leaf.due_at, facts.now)
    if leaf.retrying:
        error = f" with {error_text(leaf.error)}" if leaf.error else ""
        what = phrases.retried_text(leaf)
        return f"attempt {leaf.attempt} of {what} failed{error}; attempt {leaf.attempt + 1} at {due}"
    return f"{phrases.leaf_text(leaf)} since {words.past(leaf.since, facts.now)}" + (f", due {due}" if due else "")


def _woken(facts: Facts, text: str) -> tuple[str, ...]:
    """What wakes a waiting run, with a warning if no worker could take it then."""
    if facts.holder is not None:
        return (text,)
    missing = what_is_missing(facts.document, facts.runners)
    return (text,) if missing is None else (text, f"At present it would then stay queued: {missing}.")


def _interrupted(facts: Facts, words: Wording) -> Narrative:
    run_id, stop = facts.document.run_id, facts.milestones.interrupted
    by = "" if stop is None else f" by runner {stop.runner}, which stopped on {stop.signal}"
    at = facts.document.updated_at if facts.milestones.interrupted_at is None else facts.milestones.interrupted_at
    missing = what_is_missing(facts.document, facts.runners)
    busy = phrases.listed([phrases.leaf_text(each) for each in phrases.active_leaves(facts.document)])
    again = f"No process works on it. These run again, with the same idempotency key: {busy}."
    return Narrative(
        headline=f"{run_id} was interrupted and is queued to continue.",
        now=f"It was handed back in good order{by}, {words.past(at, facts.now)}. "
        + (again if busy else "No step is under way."),
        next=(f"Nothing until a worker is there: {missing}." if missing else "A live worker takes it in its turn.",),
        you_can=(*take_up(facts, words), *bring_back(facts, words)),
    )


TELLERS: dict[Status, Teller] = {
    Status.PENDING: _pending,
    Status.RUNNING: _running,
    Status.AWAITING_INPUT: _awaiting_input,
    Status.WAITING_SIGNAL: _waiting_signal,
    Status.WAITING: _waiting,
    Status.COMPENSATING: _compensating,
    Status.PAUSED: paused,
    Status.INTERRUPTED: _interrupted,
    Status.COMPLETED: completed,
    Status.FAILED: failed,
    Status.CANCELLED: cancelled,
    Status.MOVED: moved,
}
