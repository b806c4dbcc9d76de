"""Questions to people: what may be asked, and which answers fit.

Invariant: `check_answer` is the only judge; the sender uses it before a message is stored, the owner again before the
answer counts. A wrong answer leaves the question open.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import jsonschema
import msgspec
import referencing

from buoy.errors import BadInput

Kind: TypeAlias = Literal["confirm", "choose", "choose_many", "text", "form"]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_TRUE = {"yes", "y", "true"}
_FALSE = {"no", "n", "false"}


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person is asked. `options` for the two choose kinds, `schema` (JSON Schema) for forms."""

    title: str
    kind: Kind = "text"
    options: tuple[str, ...] = ()
    schema: dict[str, object] | None = None
    detail: str | None = None


def check_question(question: Question) -> Question:
    """The question, or a refusal that says what is wrong with it."""
    if not question.title.strip():
        raise BadInput("a question needs a title")
    if question.kind in ("choose", "choose_many") and not question.options:
        raise BadInput(f"a question of kind {question.kind!r} needs options")
    if question.kind == "form":
        if question.schema is None:
            raise BadInput("a question of kind 'form' needs a schema (JSON Schema)")
        try:
            jsonschema.Draft202012Validator.check_schema(question.schema)
        except jsonschema.SchemaError as error:
            raise BadInput(
                f"the schema of question {question.title!r} is not a JSON Schema: {error.message}"
            ) from error
    return question


def check_answer(question: Question, answer: object) -> Json:
    """The answer in its stored form, or a refusal that says what was expected."""
    match question.kind:
        case "confirm":
            return _confirm(answer)
        case "choose":
            return _choice(question, answer)
        case "choose_many":
            if not isinstance(answer, list):
                raise BadInput(f"expected a list out of {_options(question)}, found {_show(answer)}")
            chosen = [_choice(question, one) for one in answer]
            if len(set(chosen)) != len(chosen):
                raise BadInput("the same option was chosen twice")
            return cast(Json, chosen)
        case "text":
            if not isinstance(answer, str):
                raise BadInput(f"expected a text, found {_show(answer)}")
            return answer
        case "form":
            return _form(question, answer)


def _confirm(answer: object) -> bool:
    if isinstance(answer, bool):
        return answer
    word = answer.strip().lower() if isinstance(answer, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise BadInput(f"expected yes or no, found {_show(answer)}")


def _choice(question: Question, answer: object) -> str:
    if isinstance(answer, str) and answer in question.options:
        return answer
    raise BadInput(f"expected one of {_options(question)}, found {_show(answer)}")


def _form(question: Question, answer: object) -> Json:
    # An empty registry: a `$ref` to some address must never make Buoy fetch it.
    validator = jsonschema.Draft202012Validator(question.schema or {}, registry=referencing.Registry())
    for error in validator.iter_errors(answer):
        place = "/".join(str(part) for part in error.absolute_path) or "the answer"
        raise BadInput(f"{place}: {error.message}")
    return cast(Json, answer)


def _options(question: Question) -> str:
    return ", ".join(repr(option) for option in question.options)


def _show(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 80 else text[:77] + "..."
