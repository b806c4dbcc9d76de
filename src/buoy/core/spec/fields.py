"""Spec fields: the kinds of values in a spec, each with its reader and its JSON Schema; maps as tables of keys.

Invariants: a reader returns a sound value, or None after it noted what is wrong, so that reading continues. Whatever a
reader accepts its JSON Schema accepts, too. The reader is the stricter one: it knows templates and conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from buoy.core.durations import DURATION, seconds
from buoy.core.ids import NAME, check_name
from buoy.core.limits import JOB_LOG_BYTES_MIN, MEMORY_BYTES_MAX, NAME_CHARS_MAX
from buoy.core.log.questions import Json
from buoy.core.spec.model import Place
from buoy.core.spec.problems import Problems, names, shown
from buoy.core.spec.template import parse
from buoy.core.spec.values import MEMORY, memory_bytes
from buoy.errors import BadInput

T = TypeVar("T")
Read = Callable[[Any, Place, Problems], Any]
Schema = dict[str, Any]

ID = "[A-Za-z_][A-Za-z0-9_-]*"
VARIABLE = r"[A-Za-z_]\w*"
_SEEN: Schema = {"type": "string", "pattern": r"\S"}


class FieldKind(msgspec.Struct, frozen=True):
    """One kind of value: how it is read, and the JSON Schema of it."""

    read: Read
    schema: Schema


class Key(msgspec.Struct, frozen=True):
    """One key of a map: the kind of its value, what it means, and the field of the model that it fills."""

    kind: FieldKind
    meaning: str
    field: str = ""
    required: bool = False
    nullable: bool = False
    # Its default follows from other keys.
    guessed: bool = False

    def schema(self) -> Schema:
        types = self.kind.schema.get("type", [])
        also = {"type": [*([types] if isinstance(types, str) else types), "null"]} if self.nullable else {}
        return {"description": self.meaning, **self.kind.schema, **also}


class Keys:
    """All keys of one map, for the reader and for the schema; defaults are those of the model."""

    def __init__(self, model: type[msgspec.Struct], keys: Mapping[str, Key]) -> None:
        self._keys = keys
        self._required = [key for key, each in keys.items() if each.required]
        # Fields without a default come first.
        self._defaults = dict(zip(reversed(model.__struct_fields__), reversed(model.__struct_defaults__), strict=False))

    def read(self, data: dict[Any, Any], place: Place, problems: Problems) -> dict[str, Any]:
        """The fields of the model that are given, and sound."""
        made: dict[str, Any] = {}
        for key in (*data, *(each for each in self._required if each not in data)):
            known, value = self._keys.get(key), data.get(key)
            if known is None:
                problems.add((*place, str(key)), f"unknown key; {names(self._keys, str(key))}")
            elif value is not None or not known.nullable:
                found = known.kind.read(value, (*place, key), problems)
                if found is not None:
                    made[known.field or key] = found
        return made

    def schema(self, **more: object) -> Schema:
        found = {key: each.schema() for key, each in self._keys.items()}
        for key, each in self._keys.items():
            default = self._defaults.get(each.field or key)
            if isinstance(default, str | int | float) and not each.guessed:
                found[key]["default"] = default
        required = {"required": self._required} if self._required else {}
        return {"type": "object", "properties": found, **required, "additionalProperties": False, **more}


def name(what: str) -> FieldKind:
    def read(value: object, place: Place, problems: Problems) -> str:
        if not isinstance(value, str):
            problems.add(place, f"expected a name, found {shown(value)}")
            return "unknown"
        attempt(lambda: check_name(value, what), place, problems)
        return value

    return FieldKind(read, {"type": "string", "pattern": f"^{NAME}$", "maxLength": NAME_CHARS_MAX})


def plain_text(value: object, place: Place, problems: Problems) -> str | None:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        problems.add(place, f"expected a text, found {shown(value)}")
        return None
    return value


def _text(value: object, place: Place, problems: Problems) -> str | None:
    text = plain_text(value, place, problems)
    return None if text is None else template(text, place, problems)


def _texts(value: object, place: Place, problems: Problems) -> tuple[str, ...]:
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list | tuple):
        problems.add(place, f"expected a list of texts, found {shown(value)}")
        return ()
    good = []
    for number, each in enumerate(value):
        if not isinstance(each, str) or not each:
            problems.add((*place, number), f"expected a text, found {shown(each)}")
        elif (text := template(each, (*place, number), problems)) is not None:
            good.append(text)
    return tuple(good)


def _paths(value: object, place: Place, problems: Problems) -> tuple[str, ...]:
    found = _texts(value, place, problems)
    for number, each in enumerate(found):
        if "{{" in each or "\0" in each:
            problems.add((*place, number), "a file name may hold parameters, but no references")
    return found


def _memory(value: object, place: Place, problems: Problems) -> int | None:
    found = attempt(lambda: memory_bytes(value), place, problems)
    if found is not None and found > MEMORY_BYTES_MAX:
        problems.add(place, f"{shown(value)} is more than 1 PiB, and no machine has that; give what one job needs")
        return None
    return found


def _log_size(value: object, place: Place, problems: Problems) -> int | None:
    found = _memory(value, place, problems)
    if found is not None and found < JOB_LOG_BYTES_MIN:
        problems.add(place, f"{shown(value)} is less than 4 KiB, and holds no log; give at least 4KiB")
        return None
    return found


def one_of(*known: str) -> FieldKind:
    def read(value: object, place: Place, problems: Problems) -> str | None:
        if value in known:
            return str(value)
        problems.add(place, f"expected one of {', '.join(known)}; found {shown(value)}")
        return None

    return FieldKind(read, {"type": "string", "enum": list(known)})


def count(least: int, most: int) -> FieldKind:
    def read(value: object, place: Place, problems: Problems) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        problems.add(place, f"expected a whole number from {least} to {most}, found {shown(value)}")
        return None

    return FieldKind(read, {"type": "integer", "minimum": least, "maximum": most})


def _duration(value: Any, place: Place, problems: Problems) -> float | None:
    found = attempt(lambda: seconds(value, str(place[-1])), place, problems)
    if found == 0:
        problems.add(place, "expected more than nothing")
    return found or None


def _flag(value: object, place: Place, problems: Problems) -> bool | None:
    if isinstance(value, bool):
        return value
    problems.add(place, f"expected true or false, found {shown(value)}")
    return None


def _call(value: object, place: Place, problems: Problems) -> str | None:
    text = _text(value, place, problems)
    if text is None or re.fullmatch(_FUNCTION, text):
        return text
    problems.add(place, f"expected 'package.module:function', found {shown(text)}")
    return None


def _value(value: Any, place: Place, problems: Problems) -> Json:
    """Any JSON; every text in it is a template."""
    if isinstance(value, str):
        return template(value, place, problems) or ""
    if isinstance(value, list):
        return [_value(each, (*place, number), problems) for number, each in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): _value(each, (*place, key), problems) for key, each in value.items()}
    return cast(Json, value)


def _inputs(value: object, place: Place, problems: Problems) -> dict[str, Json] | None:
    if not isinstance(value, dict):
        problems.add(place, f"expected a map of inputs by name, found {shown(value)}")
        return None
    for each in value:
        if not re.fullmatch(VARIABLE, str(each)):
            problems.add((*place, each), f"{each!r} is no name for an input: letters, digits and '_'")
    return cast(dict[str, Json], _value(value, place, problems))


def attempt(work: Callable[[], T], place: Place, problems: Problems) -> T | None:
    try:
        return work()
    except BadInput as error:
        problems.add(place, str(error))
        return None


def template(text: str, place: Place, problems: Problems) -> str | None:
    """The text; None if it is no template, so that no later check repeats the error."""
    if "{" in text and attempt(lambda: parse(text), place, problems) is None:
        return None
    return text


_FUNCTION = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
_TEXT_OR_LIST: Schema = {"type": ["string", "array"], "minLength": 1, "items": {"type": "string", "minLength": 1}}
TEXT = FieldKind(_text, _SEEN)
TEXTS = FieldKind(_texts, _TEXT_OR_LIST)
PATHS = FieldKind(_paths, _TEXT_OR_LIST)
DURATIONS = FieldKind(_duration, {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": f"^{DURATION}$"})
FLAG = FieldKind(_flag, {"type": "boolean"})
CALL = FieldKind(_call, {"type": "string", "pattern": f"^{_FUNCTION}$"})
ANY = FieldKind(_value, {})
INPUTS = FieldKind(_inputs, {"type": "object", "propertyNames": {"pattern": f"^{VARIABLE}$"}})
SIZE = FieldKind(_memory, {"type": ["string", "integer"], "minimum": 1, "pattern": f"^{MEMORY}$"})
LOG_SIZE = FieldKind(_log_size, {**SIZE.schema, "minimum": JOB_LOG_BYTES_MIN})
