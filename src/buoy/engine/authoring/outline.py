"""Outline: the parameters of a workflow in short, for processes that do not have its code.

Invariant: an input that the code takes fits the outline. The outline does not know all: what is `any` to it, and what
is inside of lists and objects, only the code can check.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeAlias

from buoy.core.limits import OUTLINE_PARAMETERS_MAX, OUTLINES_PARAMETERS_MAX
from buoy.core.spec.model import is_spec
from buoy.engine.authoring.arguments import Arguments
from buoy.errors import BadInput

# Parameter -> kind of JSON, `|null` if it may be null, `?` at the end if it may be left out.
Outline: TypeAlias = dict[str, str]

_KINDS: dict[Any, str] = {int: "int", float: "float", str: "str", bool: "bool", list: "list", dict: "dict"}
_NULL, _OPTIONAL, _ANY = "|null", "?", "any"
_SPREAD: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "list", inspect.Parameter.VAR_KEYWORD: "dict"}


def outline_of(arguments: Arguments) -> Outline | None:
    """The outline of these parameters. None: they are too many, or their hints cannot be read yet."""
    parameters = arguments.signature.parameters.values()
    if len(parameters) > OUTLINE_PARAMETERS_MAX:
        return None
    try:
        hints = arguments.hints
    except BadInput:
        return None
    required = set(arguments.required)
    return {
        each.name: (_SPREAD.get(each.kind) or _kind(hints.get(each.name, Any)))
        + ("" if each.name in required else _OPTIONAL)
        for each in parameters
    }


def outlines_of(known: Mapping[str, Arguments]) -> dict[str, Outline]:
    """The outlines of workflows by name, up to a limit: they are part of the record of their runner."""
    found: dict[str, Outline] = {}
    room = OUTLINES_PARAMETERS_MAX
    for name, arguments in known.items():
        outline = None if is_spec(name) else outline_of(arguments)
        if outline is not None and len(outline) <= room:
            found[name] = outline
            room -= len(outline)
    return found


def _kind(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        some = [each for each in typing.get_args(hint) if each is not types.NoneType]
        known = _kind(some[0]) if len(some) == 1 else _ANY
        return known if known == _ANY else known + _NULL
    return _KINDS.get(typing.get_origin(hint) or hint, _ANY)


def check_input(outline: Mapping[str, str], given: Mapping[str, Any], workflow: str) -> None:
    """Refuses an input that cannot fit, and names the parameter."""
    wrong = _misfit(outline, given)
    if wrong is not None:
        takes = ", ".join(f"{name}: {_in_words(kind)}" for name, kind in outline.items()) or "none"
        raise BadInput(f"invalid arguments for workflow {workflow}: {wrong}; its parameters are {takes}")


def _in_words(kind: str) -> str:
    plain = kind.removesuffix(_OPTIONAL).replace(_NULL, " or null")
    return f"{plain} (optional)" if kind.endswith(_OPTIONAL) else plain


def _misfit(outline: Mapping[str, str], given: Mapping[str, Any]) -> str | None:
    for name in given:
        if name not in outline:
            return f"unknown parameter {name[:100]!r}"
    for name, kind in outline.items():
        if name not in given and not kind.endswith(_OPTIONAL):
            return f"parameter {name!r} is missing"
        if name in given and not _fits(given[name], kind.removesuffix(_OPTIONAL)):
            return f"parameter {name!r} must be {_in_words(kind.removesuffix(_OPTIONAL))}, got {_name(given[name])}"
    return None


def _fits(value: object, kind: str) -> bool:
    plain = kind.removesuffix(_NULL)
    if plain not in _KINDS.values() or (value is None and kind.endswith(_NULL)):
        return True
    return _name(value) == plain or (plain == "float" and _name(value) == "int")


def _name(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), _ANY)
