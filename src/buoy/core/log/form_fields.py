"""Form fields: a form's JSON Schema as the fields that a person fills in, and an example of an answer.

Invariants: nothing here judges an answer (see `forms`); a schema that is no plain object has no fields. References are
followed inside of the schema only, and not without end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.log.questions import Json
from buoy.errors import BadInput

_DEPTH_MAX = 8
_FIELDS_MAX = 100
_TRUE = {"yes", "y", "true"}
_FALSE = {"no", "n", "false"}
_EXAMPLES: dict[str, Json] = {"string": "TEXT", "integer": 1, "number": 1.5, "boolean": True, "null": None}

Schema = dict[str, Any]


class Field(msgspec.Struct, frozen=True):
    """One property of the answer. `default` is JSON, or None if there is none."""

    name: str
    title: str
    kind: str
    required: bool
    options: tuple[msgspec.Raw, ...] = ()
    default: msgspec.Raw | None = None
    detail: str | None = None
    # Of a list or an object, which are typed as JSON.
    example: str = ""

    def expects(self) -> str:
        """What may be typed, in words."""
        if self.options:
            return f"one of {', '.join(option_text(each) for each in self.options)}"
        words = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "yes or no"}
        if self.example:
            return f"JSON such as {self.example}"
        return words.get(self.kind, "JSON, or a text" if self.kind == "any" else "JSON")


def fields_of(schema: Schema) -> list[Field] | None:
    """The fields in the order of the schema; None if the answer is no object with named properties."""
    whole = _resolved(schema, schema)
    named, required = whole.get("properties", {}), whole.get("required", [])
    if _kind(whole) not in ("object", "any") or not isinstance(named, dict) or not isinstance(required, list):
        return None
    names = list(dict.fromkeys([*named, *(each for each in required if isinstance(each, str))]))
    if not names or len(names) > _FIELDS_MAX:
        return None
    return [_field(name, _resolved(named.get(name, {}), schema), schema, required=name in required) for name in names]


def _field(name: str, schema: Schema, root: Schema, *, required: bool) -> Field:
    options = schema.get("enum", [schema["const"]] if "const" in schema else [])
    detail = schema.get("description")
    return Field(
        name=name,
        title=str(schema.get("title") or name),
        kind=_kind(schema),
        required=required,
        options=tuple(_raw(each) for each in options),
        default=_raw(schema["default"]) if "default" in schema else None,
        detail=detail if isinstance(detail, str) else None,
        example=bytes(_raw(_example(schema, root, 1))).decode() if _kind(schema) in ("array", "object") else "",
    )


def parse_field(field: Field, text: str) -> Json:
    """What was typed, in the type of the field. Whether it fits is judged by the schema."""
    typed = text.strip()
    if field.options:
        return _option(field, typed)
    match field.kind:
        case "string":
            return text
        case "boolean" if typed.lower() in _TRUE | _FALSE:
            return typed.lower() in _TRUE
        case "boolean":
            raise BadInput(f"{field.name}: expected yes or no, found {typed[:60]!r}")
    try:
        found: Json = msgspec.json.decode(typed.encode())
    except msgspec.DecodeError as error:
        if field.kind == "any":
            return text
        raise BadInput(f"{field.name}: expected {field.expects()}, found {typed[:60]!r}") from error
    return found


def _option(field: Field, typed: str) -> Json:
    """By its text, or by its number in the list."""
    texts = [option_text(each) for each in field.options]
    if typed not in texts and typed.isdecimal() and 1 <= int(typed) <= len(texts):
        typed = texts[int(typed) - 1]
    if typed not in texts:
        raise BadInput(f"{field.name}: expected {field.expects()}, found {typed[:60]!r}")
    chosen: Json = msgspec.json.decode(field.options[texts.index(typed)])
    return chosen


def option_text(option: msgspec.Raw) -> str:
    """A JSON value as a person types it."""
    value = msgspec.json.decode(option)
    return value if isinstance(value, str) else bytes(option).decode()


def example_of(schema: Schema) -> str:
    """An answer of the right shape, as JSON: defaults, the first options, else a value of the type."""
    return bytes(_raw(_example(schema, schema, 0))).decode()


def _example(schema: Any, root: Schema, depth: int) -> Json:
    part = _resolved(schema, root)
    for key, value in (("default", None), ("const", None), ("examples", 0), ("enum", 0)):
        found = part.get(key)
        if key in part and (value is None or (isinstance(found, list) and found)):
            return found if value is None else found[0]  # type: ignore[index]
    kind = _kind(part) if not isinstance(part.get("type"), list) else next(iter(part["type"]), "any")
    if depth >= _DEPTH_MAX:
        return None
    if kind == "array":
        return [_example(part.get("items", {}), root, depth + 1)] * _within(part.get("minItems"), 1, _DEPTH_MAX)
    if kind == "object" or (kind == "any" and ("properties" in part or "required" in part)):
        named = part.get("properties", {})
        names = part.get("required") or list(named)
        return {name: _example(named.get(name, {}), root, depth + 1) for name in names}
    for several in ("anyOf", "oneOf"):
        if isinstance(part.get(several), list) and part[several]:
            return _example(part[several][0], root, depth + 1)
    return _plain_example(part, kind)


def _plain_example(part: Schema, kind: str) -> Json:
    """A value of the type, as near to the bounds of the schema as a simple rule comes."""
    if kind in ("integer", "number"):
        floor, over = part.get("minimum"), part.get("exclusiveMinimum")
        for bound, value in ((floor, floor), (over, None if not isinstance(over, int | float) else over + 1)):
            if isinstance(bound, int | float) and not isinstance(bound, bool) and bound >= 1:
                return value
        top = part.get("maximum")
        return top if isinstance(top, int | float) and not isinstance(top, bool) and top < 1 else _EXAMPLES[kind]
    text = _EXAMPLES.get(kind, "TEXT")
    if not isinstance(text, str):
        return text
    length = _within(part.get("minLength"), len(text), _FIELDS_MAX)
    return (text * length)[:length]


def _within(least: object, low: int, high: int) -> int:
    return min(max(least, low), high) if isinstance(least, int) and not isinstance(least, bool) else low


def _resolved(schema: Any, root: Schema) -> Schema:
    """The schema that a reference means; an empty one, which allows all, where that is unknown."""
    for _ in range(_DEPTH_MAX):
        target = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(target, str):
            break
        schema = _at(root, target)
    return schema if isinstance(schema, dict) else {}


def _at(root: Schema, pointer: str) -> Any:
    if pointer != "#" and not pointer.startswith("#/"):
        return {}
    place: Any = root
    for part in pointer[2:].split("/") if len(pointer) > 1 else ():
        name = part.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, dict) else None
    return place


def _kind(schema: Schema) -> str:
    found = schema.get("type", "any")
    return found if isinstance(found, str) else "any"


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
