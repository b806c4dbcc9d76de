"""Phrases: the parts of explanations: times with ages, commands to type, names of leaves."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from buoy.core.advice import Advice, Blank, kind_of
from buoy.core.diagnosis.facts import Facts, MessageFacts, ProgressFacts, RunnerFacts
from buoy.core.durations import in_words
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.events import ErrorInfo
from buoy.core.log.lifecycle import Status
from buoy.core.log.questions import Question
from buoy.errors import BadInput

# Prefix of the workflow name of a step that another queue's workers execute.
REMOTE_STEP = "step:"
# A time up to this much ahead counts as now: two clocks never agree exactly.
_CLOCKS_AGREE_S = 5.0
_NAMED_MAX = 3
_TRACEBACK_MAX = 6
_OUTPUT_MAX = 6
# A longer example of an answer is no help on a command line.
_EXAMPLE_MAX = 500
_FRAME = '  File "'
_ENGINE = "/buoy/engine/"


def utc_text(at: float) -> str:
    """A time as text in UTC, for callers that name no zone."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Wording(msgspec.Struct, frozen=True):
    """How to write times, and which store option a command needs."""

    when: Callable[[float], str] = utc_text
    store: str | None = None

    def command(self, *words: str) -> str:
        """A command to type as it stands. Placeholders in capitals stay as they are."""
        option = () if self.store is None else ("--store", self.store)
        return shlex.join(["buoy", *words, *option])

    def advise(self, text: str, *words: str, env: dict[str, str] | None = None) -> Advice:
        """Advice with the command that follows it."""
        blanks = tuple(str(word) for word in words if isinstance(word, Blank))
        return Advice(kind_of(words), text, self.command(*words), blanks, env or {})

    def past(self, at: float, now: float) -> str:
        if at > now + _CLOCKS_AGREE_S:
            return f"{self.when(at)} ({in_words(at - now)} ahead of this clock)"
        return f"{self.when(at)} ({in_words(max(now - at, 0.0))} ago)"

    def future(self, at: float, now: float) -> str:
        if at <= now:
            return f"{self.when(at)} (due now)"
        return f"{self.when(at)} (in {in_words(at - now)})"


def runner_text(runner: RunnerFacts) -> str:
    if not runner.pid:
        return f"runner {runner.id}"
    return f"runner {runner.id} (process {runner.pid} on {runner.host})"


def leaf_text(leaf: OpenLeaf) -> str:
    """The name of a leaf for people: 'step pack (attempt 2)'."""
    match leaf.kind:
        case "step" | "module":
            return f"step {leaf.name} (attempt {leaf.attempt})"
        case "job" if leaf.error is not None:
            return f"job {leaf.name}, which failed"
        case "job":
            return f"job {leaf.name}"
        case "group":
            return f"step {leaf.name}, by its parts"
        case "ask":
            return f"the question {leaf.name!r}"
        case "signal":
            return f"signal {leaf.name!r}"
        case "child" if leaf.name.startswith(REMOTE_STEP):
            return f"step {leaf.name.removeprefix(REMOTE_STEP)}, which is executed elsewhere"
        case "child":
            return f"a child run of {leaf.name}"
        case "compensation":
            return f"the compensation of {leaf.name}"
        case _:
            return f"a {leaf.name}"


def retried_text(leaf: OpenLeaf) -> str:
    """The name of a leaf that is tried again, without the attempt: 'step pack'."""
    return leaf_text(leaf) if leaf.kind == "compensation" else f"step {leaf.name}"


def active_leaves(document: Document) -> list[OpenLeaf]:
    """The steps and compensations that are under way."""
    return [each for each in document.open if each.kind in ("step", "module", "compensation") and not each.retrying]


def questions(document: Document) -> list[OpenLeaf]:
    return [each for each in document.open if each.question is not None]


def traceback_lines(error: ErrorInfo) -> tuple[str, ...]:
    """The last lines of a traceback: the place in the user's code, and the error."""
    lines = [line.rstrip() for line in (error.traceback or "").splitlines() if line.strip(" ~^")]
    own: list[str] = []
    ours = False
    for line in lines:
        ours = _ENGINE in line if line.startswith(_FRAME) else ours and line.startswith("    ")
        if not ours:
            own.append(line)
    return tuple((own if any(line.startswith(_FRAME) for line in own) else lines)[-_TRACEBACK_MAX:])


def trouble_lines(error: ErrorInfo) -> tuple[str, ...]:
    """What an error has beyond its first line: its place, or the last output of a command."""
    if error.traceback:
        return traceback_lines(error)
    more = [line.rstrip() for line in error.message.splitlines()[1:] if line.strip()]
    return tuple(f"  {line}" for line in more[-_OUTPUT_MAX:])


def status_text(status: Status) -> str:
    """A status in words."""
    return "awaiting answer" if status is Status.AWAITING_INPUT else status.replace("_", " ")


def shortened(text: str, chars_max: int) -> str:
    """The text, cut at that length with three dots."""
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."


def listed(texts: list[str]) -> str:
    """'a, b, c and 4 more'."""
    if len(texts) <= _NAMED_MAX:
        return ", ".join(texts)
    return f"{', '.join(texts[:_NAMED_MAX])} and {len(texts) - _NAMED_MAX} more"


def current_progress(facts: Facts) -> ProgressFacts | None:
    """The progress of a step that executes now. Older progress, or that of an ended step, says nothing about now."""
    found, document, milestones = facts.progress, facts.document, facts.milestones
    if found is None:
        return None
    whole = document.open_count <= len(document.open)
    if whole and found.leaf and found.leaf not in {str(each.leaf) for each in active_leaves(document)}:
        return None
    mine = milestones.claimed is not None and facts.holder is not None and milestones.claimed.runner == facts.holder.id
    if mine and milestones.claimed_at is not None and found.at < milestones.claimed_at:
        return None
    return found


def progress_text(progress: ProgressFacts) -> str:
    parts: list[str] = []
    if progress.done is not None and progress.total:
        parts.append(f"{progress.done:g} of {progress.total:g} ({progress.done / progress.total:.0%})")
    elif progress.done is not None:
        parts.append(f"{progress.done:g} done")
    if progress.note:
        parts.append(progress.note)
    return ", ".join(parts) or "reported"


def answer_words(question: Question) -> list[str]:
    """An example of a valid answer, as words of the command."""
    match question.kind:
        case "confirm":
            return ["yes"]
        case "choose":
            return [question.options[0]] if question.options else [Blank("OPTION")]
        case "choose_many":
            return [",".join(question.options[:2]) or Blank("OPTION,OPTION")]
        case "form":
            return ["--form", _form_example(question)]
        case _:
            return [Blank("TEXT")]


def _form_example(question: Question) -> str:
    """An answer that the form accepts; `JSON` if no short one is found."""
    # Imported here: most runs have no form, and the schema validator is slow to load.
    from buoy.core.log.form_fields import example_of
    from buoy.core.log.forms import check_form

    example = example_of(question.schema or {})
    try:
        check_form(question.title, question.schema or {}, msgspec.json.decode(example))
    except BadInput:
        return Blank("JSON")
    return example if len(example) <= _EXAMPLE_MAX else Blank("JSON")


def expected_text(question: Question) -> str:
    match question.kind:
        case "confirm":
            return "yes or no"
        case "choose":
            return f"one of {', '.join(question.options)}"
        case "choose_many":
            return f"any of {', '.join(question.options)}, separated by commas"
        case "form":
            return "JSON that fits its schema"
        case _:
            return "a text"


def message_text(message: MessageFacts, facts: Facts) -> str:
    """An unread message: 'an answer to 'Ship it?' by ann, 3 s ago'."""
    names = {each.question_id: each.name for each in questions(facts.document)}
    match message.kind:
        case "answer":
            asked = names.get(message.about, message.about)
            what = f"an answer to {asked!r}" if asked else "an answer that names no question"
        case "signal":
            what = f"signal {message.about!r}"
        case "child_finished":
            what = f"the end of child {message.about}"
        case "jobs" | "cluster":
            what = "a request about its jobs" if message.kind == "jobs" else "a change of its allocations"
        case _:
            what = f"a request to {message.kind}"
    by = f" by {message.by}" if message.by and message.kind != "child_finished" else ""
    return f"{what}{by}, {in_words(max(facts.now - message.sent_at, 0.0))} ago{_not_waited_for(message, facts)}"


def _not_waited_for(message: MessageFacts, facts: Facts) -> str:
    """Marks a signal that the run does not wait for: its name may be a typing error."""
    waits = {leaf.name for leaf in facts.document.open if leaf.kind == "signal"}
    return "" if message.kind != "signal" or message.about in waits else " (not what it waits for now)"
