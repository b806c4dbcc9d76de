"""Forms: JSON Schema as the judge of questions of kind `form`.

Invariants: nothing is ever fetched: a reference must stay inside of its schema; what a schema itself breaks while it
judges is a refusal with a reason, never a crash of the run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import jsonschema
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, Schema

from buoy.errors import BadInput

if TYPE_CHECKING:
    from referencing._core import Resolver

_SCHEMA_TROUBLES = (Unresolvable, RecursionError, re.error, ArithmeticError, ValueError, TypeError)


def check_schema(title: str, schema: dict[str, object]) -> None:
    """Refuses a schema that is none, or that refers to something outside of itself."""
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


def check_form(title: str, schema: dict[str, object], answer: object) -> None:
    """Refuses an answer that does not fit, naming the place."""
    # A registry that fetches nothing: a `$ref` to some address must never make Buoy call there.
    validator = jsonschema.Draft202012Validator(schema, registry=EMPTY_REGISTRY)
    try:
        error = next(validator.iter_errors(answer), None)
    except _SCHEMA_TROUBLES as trouble:
        raise BadInput(f"the answer cannot be judged by the schema of {title!r}: {trouble}") from trouble
    if error is not None:
        place = "/".join(str(part) for part in error.absolute_path) or "the answer"
        raise BadInput(f"{place}: {error.message}")
