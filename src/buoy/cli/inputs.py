"""Inputs: what a person typed as the arguments of a workflow, as the JSON that is stored.

Invariant: nothing is started with an input that does not fit; the refusal says which argument and what was expected.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from buoy.core import codec
from buoy.engine.arguments import Arguments
from buoy.engine.spec_workflow import SpecArguments
from buoy.errors import BadInput


def stored_input(arguments: Arguments, given: str | None, pairs: tuple[str, ...]) -> msgspec.Raw | None:
    """`--input` and `--arg` together, checked; None if neither was given."""
    if given is None and not pairs:
        return None
    named = {} if given is None else _from_json(given, arguments)
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise BadInput(f"--arg {pair!r} has not the form name=value")
        named[name] = _value(text, arguments.hints.get(name, Any))
    stored = codec.encode(named, "the input")
    arguments.decode(stored)
    return stored


def no_input(arguments: Arguments) -> msgspec.Raw:
    """What a workflow gets that was started without any input."""
    if isinstance(arguments, SpecArguments):
        return arguments.complete({})
    stored = codec.encode({}, "the input")
    arguments.decode(stored)
    return stored


def parse_json(text: str, what: str) -> Any:
    """A JSON value that somebody typed."""
    return codec.decode(text.encode(), Any, what)


def _from_json(given: str, arguments: Arguments) -> dict[str, Any]:
    text = _read(given[1:]) if given.startswith("@") else given
    found = parse_json(text, "--input")
    if not isinstance(found, dict):
        raise BadInput(f"--input must be a JSON object of arguments by name; the workflow takes {arguments.signature}")
    return found


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--input @{name} cannot be read: {error}") from error


def _value(text: str, kind: Any) -> object:
    """`5` is a number for an int and a text for a str; what is no JSON is a text."""
    if kind is str:
        return text
    try:
        found = parse_json(text, "a value")
        if kind is not Any:
            codec.convert(found, kind, "a value")
        return found
    except BadInput:
        return text
