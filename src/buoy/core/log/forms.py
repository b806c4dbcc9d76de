"""Forms: JSON Schema as the judge of questions of kind `form`.

Invariants: nothing is ever fetched: a reference must stay inside of its schema; what a schema itself breaks while it
judges is a refusal with a reason, never a crash of the run. Judging takes bounded work, since owners judge on their
event loop: every keyword that is looked at is paid out of one budget, and so is each step of a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import jsonschema
import msgspec
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, Schema

from buoy.core.limits import FORM_STEPS_MAX
from buoy.core.log.patterns import Budget, pattern_of
from buoy.errors import BadInput

if TYPE_CHECKING:
    from referencing._core import Resolver

_ERRORS_SHOWN = 10
_SCHEMA_TROUBLES = (Unresolvable, RecursionError, re.error, ArithmeticError, ValueError, TypeError)


def check_schema(title: str, schema: dict[str, object]) -> None:
    """Refuses an invalid schema, or one that refers to something outside of itself."""
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
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise BadInput(f"the schema of question {title!r} is nested too deeply") from error


def _check_references(resolver: Resolver[Schema], part: Resource[Schema]) -> None:
    """Looks every reference up now: later, a person would have a question that no answer can fit."""
    if isinstance(part.contents, dict):
        _check_patterns(part.contents)
        for key in ("$ref", "$dynamicRef"):
            if key in part.contents:
                resolver.lookup(cast(str, part.contents[key]))
    for inner in part.subresources():
        _check_references(resolver.in_subresource(inner), inner)


def _check_patterns(schema: dict[str, Any]) -> None:
    """Refuses patterns that can not be matched in bounded work."""
    several = schema.get("patternProperties", {})
    for pattern in (schema.get("pattern"), *several):
        if isinstance(pattern, str):
            pattern_of(pattern)
    if several and "unevaluatedProperties" in schema:
        raise BadInput("patternProperties together with unevaluatedProperties can not be judged; name the properties")


def check_form(title: str, schema: dict[str, object], answer: object, *, field: str | None = None) -> None:
    """Refuses an answer that does not fit, naming every place (the first ones of very many).

    `field`: only that field is judged. Others may not be filled in yet.
    """
    # A registry that fetches nothing: a `$ref` to some address must never make Buoy call there.
    validator = _bounded_validator(Budget(FORM_STEPS_MAX))(schema, registry=EMPTY_REGISTRY)
    try:
        found = validator.iter_errors(answer)
        wanted = found if field is None else (each for each in found if [*each.absolute_path][:1] == [field])
        errors = list(islice(wanted, _ERRORS_SHOWN + 1))
    except _SCHEMA_TROUBLES as trouble:
        raise BadInput(f"the answer cannot be judged by the schema of {title!r}: {trouble}") from trouble
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise BadInput(f"the answer to {title!r}, or its schema, is nested too deeply") from error
    if errors:
        more = "; and more" if len(errors) > _ERRORS_SHOWN else ""
        raise BadInput("; ".join(_error_text(each) for each in errors[:_ERRORS_SHOWN]) + more)


def _is_panic(error: BaseException) -> bool:
    """Whether jsonschema's Rust library gave up, as it does at the end of Python's stack.

    Its error is no `Exception`, so it would pass all guards of a run. The class cannot be imported.
    """
    return type(error).__module__ == "pyo3_runtime"


# What jsonschema leaves out of its messages.
_LIMITS = {
    "maxLength": "the most characters:",
    "minLength": "the fewest characters:",
    "maxItems": "the most items:",
    "minItems": "the fewest items:",
}


def _error_text(error: jsonschema.ValidationError) -> str:
    place = "/".join(str(part) for part in error.absolute_path) or "the answer"
    limit = _LIMITS.get(str(error.validator))
    return f"{place}: {error.message}{'' if limit is None else f' ({limit} {error.validator_value})'}"


# ---- judging in bounded work

Keyword = Callable[[Any, Any, Any, Any], Iterator[jsonschema.ValidationError]]


def _bounded_validator(budget: Budget) -> Any:
    """The judge of JSON Schema, whose every keyword costs something."""
    plain = jsonschema.Draft202012Validator
    keywords: dict[str, Keyword] = {
        **plain.VALIDATORS,
        "pattern": _pattern(budget),
        "patternProperties": _pattern_properties(budget),
        "additionalProperties": _additional_properties(budget),
        "uniqueItems": _unique_items,
    }
    extend: Any = jsonschema.validators.extend
    return extend(plain, {name: _paid(each, budget) for name, each in keywords.items()})


def _paid(keyword: Keyword, budget: Budget) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        budget.pay(10)
        with budget.deeper():
            yield from keyword(validator, value, instance, schema) or ()

    return check


def _matches(pattern: str, text: str, budget: Budget) -> bool:
    try:
        found = pattern_of(pattern)
    except BadInput:
        # Such questions are refused when they are asked. An older version asked this one.
        return True
    return found.search(text, budget)


def _pattern(budget: Budget) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        if isinstance(instance, str) and not _matches(value, instance, budget):
            yield jsonschema.ValidationError(f"{instance!r} does not match {value!r}")

    return check


def _pattern_properties(budget: Budget) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        if isinstance(instance, dict):
            for pattern, inner in value.items():
                for key, each in instance.items():
                    if _matches(pattern, key, budget):
                        yield from validator.descend(each, inner, path=key, schema_path=pattern)

    return check


def _additional_properties(budget: Budget) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        if not isinstance(instance, dict):
            return
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for key, each in instance.items():
            if key in named or any(_matches(pattern, key, budget) for pattern in patterns):
                continue
            if value is False:
                yield jsonschema.ValidationError(f"property {key!r} is not expected")
            elif isinstance(value, dict):
                yield from validator.descend(each, value, path=key)

    return check


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    """By their JSON: comparing each with each would take the square of their number."""
    if value and isinstance(instance, list):
        written = {msgspec.json.encode(_plain_numbers(each), order="deterministic") for each in instance}
        if len(written) < len(instance):
            yield jsonschema.ValidationError("the same item is there twice")


def _plain_numbers(value: Any) -> Any:
    """1 and 1.0 are one number in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain_numbers(each) for each in value]
    return {key: _plain_numbers(each) for key, each in value.items()} if isinstance(value, dict) else value
