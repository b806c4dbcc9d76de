"""Answers: parses typed answers, and words questions for a terminal."""

from __future__ import annotations

import msgspec

from buoy.cli.terminal.render import one_line
from buoy.core.explain.phrases import expected_text, shortened
from buoy.core.log.form_fields import example_of
from buoy.core.log.questions import Question
from buoy.errors import BadInput
from buoy.operations.targets.inputs import parse_json

_ANSWER_CHARS_MAX = 60


def parse_answer(question: Question, text: str) -> object:
    """The typed text as a value for this kind of question. The core checks whether it fits."""
    match question.kind:
        case "choose_many":
            if text.lstrip().startswith("["):
                return parse_json(text, "the answer")
            return [part.strip() for part in text.split(",") if part.strip()]
        case "form":
            try:
                return parse_json(text, "the answer")
            except BadInput as error:
                example = example_of(question.schema or {})
                raise BadInput(f"{error}; the question is a form: answer with JSON such as {example}") from error
        case "confirm" | "choose":
            return text.strip()
        case _:
            return text


def numbered(question: Question, text: str) -> str:
    """Replaces the numbers of options by the options."""
    if question.kind not in ("choose", "choose_many") or text.lstrip().startswith("["):
        return text
    parts = [part.strip() for part in text.split(",")] if question.kind == "choose_many" else [text.strip()]
    found = [_option(question, part) for part in parts if part]
    if question.kind == "choose":
        return found[0] if found else ""
    return msgspec.json.encode(found).decode()


def _option(question: Question, part: str) -> str:
    if part in question.options or not part.isdecimal() or not 1 <= int(part) <= len(question.options):
        return part
    return question.options[int(part) - 1]


def prompt_lines(question: Question) -> list[str]:
    """The question as lines for a person."""
    lines = [question.title]
    if question.detail:
        lines.append(question.detail)
    lines += [f"  {place}. {option}" for place, option in enumerate(question.options, 1)]
    if question.kind == "form" and question.schema is not None:
        lines.append(f"  schema: {msgspec.json.encode(question.schema).decode()}")
        lines.append(f"  for example: {example_of(question.schema)}")
    return lines


def prompt(question: Question) -> str:
    return f"{expected_text(question)}: "


def answer_text(stored: msgspec.Raw) -> str:
    """A stored answer in one line, as a person would say it."""
    value = msgspec.json.decode(stored)
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else bytes(stored).decode(errors="replace")
    return shortened(one_line(text), _ANSWER_CHARS_MAX)
