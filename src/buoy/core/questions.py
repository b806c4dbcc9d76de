"""Questions to people: what may be asked, and which answers fit.

Invariant: `check_answer` is the only judge; the sender uses it before a message is stored, the owner again before the
answer counts. A wrong answer leaves the question open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never, cast

import jsonschema
import msgspec
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, Schema

from buoy.errors import BadInput

if TYPE_CHECKING:
    from referencing._core import Resolver

Kind: TypeAlias = Literal["confirm", "choose", "choose_many", "text", "form"]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# What a schema itself can break while it judges. Each is a refusal with a reason, never a crash of the run.
_SCHEMA_TROUBLES = (Unresolvable, RecursionError, re.error, ArithmeticError, ValueError, TypeError)

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
        _check_schema(question.title, question.schema)
    return question


def _check_schema(title: str, schema: dict[str, object]) -> None:
    validator = jsonschema.Draft202012Validator
    try:
        validator.check_schema(schema, format_checker=validator.FORMAT_CHECKER)
        root = DRAFT202012.create_resource(cast(Schema, schema))
        _check_references(EMPTY_REGISTRY.resolver_with_root(root), root)
    except jsonschema.SchemaError as error:
        raise BadInput(f"the schema of question {title!r} is not a JSON Schema: {error.message}") from error
    except _SCHEMA_TROUBLES as error:
        raise BadInput(
            f"the schema of question {title!r} cannot be used: {error}; references must stay inside of it"
        ) from error


def _check_references(resolver: Resolver[Schema], part: Resource[Schema]) -> None:
    """Looks every reference up now: later, a person would have a question that no answer can fit."""
    if isinstance(part.contents, dict):
        for key in ("$ref", "$dynamicRef"):
            if key in part.contents:
                resolver.lookup(cast(str, part.contents[key]))
    for inner in part.subresources():
        _check_references(resolver.in_subresource(inner), inner)


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


def _form(question: Question, answer: object) -> Json:
    # A registry that fetches nothing: a `$ref` to some address must never make Buoy call there.
    validator = jsonschema.Draft202012Validator(question.schema or {}, registry=EMPTY_REGISTRY)
    try:
        error = next(validator.iter_errors(answer), None)
    except _SCHEMA_TROUBLES as trouble:
        raise BadInput(f"the answer cannot be judged by the schema of {question.title!r}: {trouble}") from trouble
    if error is not None:
        place = "/".join(str(part) for part in error.absolute_path) or "the answer"
        raise BadInput(f"{place}: {error.message}")
    return cast(Json, answer)


def _options(question: Question) -> str:
    return ", ".join(repr(option) for option in question.options)


def _show(answer: object) -> str:
    try:
        text = repr(answer)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists...
        text = f"a {type(answer).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
