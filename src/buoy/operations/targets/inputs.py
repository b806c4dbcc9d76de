"""Inputs: turns typed arguments of a workflow into the JSON that is stored.

Invariant: an input that does not fit is refused before a run starts; the error names the argument and the expectation.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.log import codec
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.spec.workflow import SpecArguments
from buoy.errors import BadInput


def stored_input(arguments: Arguments, given: str | None, pairs: tuple[str, ...]) -> msgspec.Raw | None:
    """`--input` and `--arg` together, checked; None if neither was given."""
    if given is None and not pairs:
        return None
    named = {} if given is None else _from_json(given, arguments)
    for name, text in named_texts(pairs, "--arg").items():
        kind = arguments.hints.get(name, Any)
        named[name] = found = _value(text, kind)
        if found is text and not _fits(text, kind) and _fits([], kind):
            raise BadInput(f"invalid --arg {name}={text}; write a list as JSON: --arg {name}='{_as_list(text, kind)}'")
    stored = codec.encode(named, "the input")
    arguments.decode(stored)
    return stored


def named_texts(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """The values of an option that was given as NAME=VALUE, once for each name."""
    named: dict[str, str] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise BadInput(f"invalid {option} {pair!r}; write NAME=VALUE")
        if name in named:
            raise BadInput(f"{option} {name} is given twice; for several values give one JSON list: {name}='[1, 2]'")
        named[name] = text
    return named


def no_input(arguments: Arguments) -> msgspec.Raw:
    """The input of a workflow that is started without arguments."""
    if isinstance(arguments, SpecArguments):
        return arguments.complete({})
    stored = codec.encode({}, "the input")
    arguments.decode(stored)
    return stored


def parse_json(text: str, what: str) -> Any:
    """A JSON value that a person typed."""
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
    """`5` is a number for an int and a text for a str; what is no JSON is a text.

    A decimal number stays a text: as a JSON number it would lose digits. JSON that does not fit is handed on, so that
    the refusal is about the value and not about the text.
    """
    if kind is str or (kind is Decimal and not text.startswith('"')):
        return text
    try:
        found = parse_json(text, "a value")
    except BadInput:
        return text
    return text if not _fits(found, kind) and _fits(text, kind) else found


def _as_list(text: str, kind: Any) -> str:
    """What was typed, as the list that was perhaps meant."""
    parts = [part.strip() for part in text.strip("[] ").split(",") if part.strip()]
    return msgspec.json.encode(parts).decode() if _fits(parts, kind) else "[1, 2]"


def _fits(value: object, kind: Any) -> bool:
    if kind is Any:
        return True
    try:
        codec.convert(value, kind, "a value")
    except BadInput:
        return False
    return True
