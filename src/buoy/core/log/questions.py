"""Questions to people: what may be asked, and which answers fit.

Invariant: `check_answer` is the only judge; the sender uses it before a message is stored, the owner again before the
answer counts. A wrong answer leaves the question open.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, TypeAlias, assert_never, cast, get_args

import msgspec

from buoy.core.limits import QUESTION_BYTES_MAX, QUESTION_TITLE_CHARS_MAX
from buoy.errors import BadInput

Kind: TypeAlias = Literal["confirm", "choose", "choose_many", "text", "form"]
KINDS: tuple[str, ...] = get_args(Kind)
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


def make_question(title: object, kind: object, options: object, schema: object, detail: object) -> Question:
    """The question that workflow code asks, or a refusal that says what is wrong with it."""
    named = _text(title, "the title of a question")
    if kind is None:
        kind = "form" if schema is not None else "choose" if options else "text"
    if kind not in KINDS:
        raise BadInput(f"unknown kind {_show(kind)} of question {named!r}; choose {', '.join(KINDS)}")
    if schema is not None and not isinstance(schema, dict):
        raise BadInput(f"the schema of question {named!r} must be a dict (JSON Schema): {_show(schema)}")
    return check_question(
        Question(
            title=named,
            kind=cast(Kind, kind),
            options=_checked_options(named, options),
            schema=None if schema is None else _plain(named, schema),
            detail=None if detail is None else _text(detail, f"the detail of question {named!r}"),
        )
    )


def _text(value: object, what: str) -> str:
    """The value as a text that can be stored, or a refusal."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a text: {_show(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{what} cannot be stored: {_show(value)} has a lone surrogate; decode it first") from error
    return str(value.value) if isinstance(value, Enum) else str(value)


def _checked_options(title: str, options: object) -> tuple[str, ...]:
    if isinstance(options, str) or not isinstance(options, Iterable):
        raise BadInput(f"the options of question {title!r} must be a list of texts: {_show(options)}")
    return tuple(_text(each, f"option {place} of question {title!r}") for place, each in enumerate(options, 1))


def _plain(title: str, schema: dict[str, object]) -> dict[str, object]:
    """The schema as plain JSON: as every reader of the log sees it."""
    try:
        found: dict[str, object] = msgspec.json.decode(msgspec.json.encode(schema))
    except Exception as error:
        raise BadInput(f"the schema of question {title!r} cannot be stored as JSON: {error}") from error
    return found


def check_question(question: Question) -> Question:
    """The question, or a refusal that says what is wrong with it."""
    if not question.title.strip():
        raise BadInput("a question needs a title")
    if len(question.title) > QUESTION_TITLE_CHARS_MAX:
        raise BadInput(
            f"the title of a question has {len(question.title):,} characters, the limit is "
            f"{QUESTION_TITLE_CHARS_MAX:,}; put the rest into `detail`"
        )
    size = len(msgspec.json.encode(question))
    if size > QUESTION_BYTES_MAX:
        raise BadInput(
            f"question {question.title!r} has {size:,} bytes, the limit is {QUESTION_BYTES_MAX:,}; "
            "store what it shows elsewhere, and ask with a reference"
        )
    if question.kind in ("choose", "choose_many") and not question.options:
        raise BadInput(f"a question of kind {question.kind!r} needs options")
    if question.kind == "form":
        if question.schema is None:
            raise BadInput("a question of kind 'form' needs a schema (JSON Schema)")
        # Imported here: most runs and commands never meet a form, and the library takes long to load.
        from buoy.core.log.forms import check_schema

        check_schema(question.title, question.schema)
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
            from buoy.core.log.forms import check_form

            check_form(question.title, question.schema or {}, answer)
            return cast(Json, answer)
        case _:
            assert_never(question.kind)


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


def _options(question: Question) -> str:
    return ", ".join(repr(option) for option in question.options)


def _show(answer: object) -> str:
    try:
        text = repr(answer)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists...
        text = f"a {type(answer).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
