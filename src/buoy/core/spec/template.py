"""Templates of specs: `train_{k}`, `{k:03}`, `{{ steps.gather.fetch }}`.

`{k}` is a parameter, filled in when the run is planned. `{{ ... }}` is a reference to a result, filled in when the step
starts. `\\{` is a brace; `${NAME}` and braces around anything that is no name are left alone, since shells have them.
Invariant: a template that is only one reference or parameter keeps the type of its value; within other text a
value is written as text. Nothing is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias, cast

import msgspec

from buoy.core.log.questions import Json
from buoy.core.spec.model import Scalar
from buoy.errors import BadInput

ROOTS = ("steps", "modules", "parameters", "run")

_PARAM = re.compile(r"\{([A-Za-z_]\w*)(?::0?(\d{1,2})d?)?\}")
_SEGMENT = re.compile(r"(?:[A-Za-z0-9_-]|\{[A-Za-z_]\w*(?::0?\d{1,2}d?)?\})+\Z")
_MARK = re.compile(r"\\[{}]|\$\{|\{\{|\{[A-Za-z_]\w*(?::0?\d{1,2}d?)?\}")

Bound: TypeAlias = Mapping[str, Scalar]


class Param(NamedTuple):
    """`{name}`, or `{name:03}` with leading zeros."""

    name: str
    width: int = 0

    def text(self, bound: Bound) -> str:
        return text_of(bound[self.name]).zfill(self.width)


Segment: TypeAlias = "tuple[str | Param, ...]"


class Ref(NamedTuple):
    """`root.segment.segment`; each segment may hold parameters."""

    root: str
    path: tuple[Segment, ...]
    source: str


Part: TypeAlias = str | Param | Ref


class Template(NamedTuple):
    """A text in parts."""

    parts: tuple[Part, ...]

    def params(self) -> Iterator[str]:
        """The names of all parameters, those inside of references too."""
        for part in self.parts:
            if isinstance(part, Param):
                yield part.name
            elif isinstance(part, Ref):
                yield from params_of(part)

    def refs(self) -> Iterator[Ref]:
        return (part for part in self.parts if isinstance(part, Ref))

    def fill(self, bound: Bound) -> str:
        """The text; for templates without references."""
        return "".join(part.text(bound) if isinstance(part, Param) else cast(str, part) for part in self.parts)


def params_of(ref: Ref) -> Iterator[str]:
    """The parameters in a reference."""
    return (piece.name for segment in ref.path for piece in segment if isinstance(piece, Param))


def segment_of(template: Template) -> Segment:
    """A template as a name with parameters; references have no place in a name."""
    return tuple(part for part in template.parts if isinstance(part, str | Param))


def fill_segment(segment: Segment, bound: Bound) -> str:
    return "".join(piece if isinstance(piece, str) else piece.text(bound) for piece in segment)


@lru_cache(maxsize=4096)
def parse(text: str) -> Template:
    """The template that a text is, or a refusal."""
    if "{" not in text:
        return Template((text,)) if text else Template(())
    parts: list[Part] = []
    plain, place = "", 0
    while (mark := _MARK.search(text, place)) is not None:
        plain += text[place : mark.start()]
        found: Part | None = None
        place = mark.end()
        match mark.group():
            case "\\{" | "\\}":
                plain += mark.group()[1]
            case "${":
                plain += "${"
            case "{{":
                end = _end_of_ref(text, place)
                found, place = parse_ref(text[place:end].strip()), end + 2
            case one:
                found = _param(one)
        if found is not None:
            parts += [plain, found] if plain else [found]
            plain = ""
    plain += text[place:]
    return Template((*parts, plain) if plain else tuple(parts))


def _end_of_ref(text: str, start: int) -> int:
    """Where the `}}` of a reference is: the last two of three braces, since a parameter may end with one."""
    end = text.find("}}", start)
    if end < 0:
        raise BadInput(f"'{{{{' without '}}}}' in {text[:60]!r}; a brace of its own is written '\\{{'")
    return end + 1 if text[end : end + 3] == "}}}" else end


def _param(text: str) -> Param:
    found = _PARAM.match(text)
    assert found is not None
    return Param(found[1], int(found[2] or 0))


def parse_ref(text: str) -> Ref:
    """`steps.train_{k}.score` in parts."""
    root, *rest = text.split(".")
    example = "expected steps.ID, steps.ID.key, modules.ID, parameters.NAME or run.id"
    if root not in ROOTS or not rest:
        raise BadInput(f"reference {text[:60]!r} is not known: {example}")
    if not all(_SEGMENT.match(segment) for segment in rest):
        raise BadInput(f"reference {text[:60]!r} has a part that is no name: {example}")
    if root == "run" and rest != ["id"]:
        raise BadInput(f"reference {text[:60]!r} is not known: a run has only run.id")
    return Ref(root, tuple(_segment(each) for each in rest), text)


def _segment(text: str) -> Segment:
    parts: list[str | Param] = []
    place = 0
    for found in _PARAM.finditer(text):
        if found.start() > place:
            parts.append(text[place : found.start()])
        parts.append(_param(found.group()))
        place = found.end()
    if place < len(text):
        parts.append(text[place:])
    return tuple(parts)


def render(template: Template, bound: Bound, lookup: Callable[[Ref], Json]) -> Json:
    """The value that a template amounts to."""
    if not template.parts:
        return ""
    if len(template.parts) == 1:
        only = template.parts[0]
        if isinstance(only, Ref):
            return lookup(only)
        if isinstance(only, Param):
            return only.text(bound) if only.width else bound[only.name]
    texts: list[str] = []
    for part in template.parts:
        match part:
            case Param():
                texts.append(part.text(bound))
            case Ref():
                texts.append(text_of(lookup(part)))
            case _:
                texts.append(part)
    return "".join(texts)


def text_of(value: object) -> str:
    """A value within other text: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_RESULT = "; a command gives a result by writing it to the file $BUOY_RESULT_FILE"


def dig(value: object, path: tuple[str, ...], name: str) -> Json:
    """What is at that path in a result, or a refusal that says what is there instead."""
    for key in path:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            there = ", ".join(map(str, list(value)[:8])) if isinstance(value, dict) else f"a {type(value).__name__}"
            raise BadInput(f"{name} has no {key!r}: it has {there}{_RESULT if key == 'result' else ''}")
    return cast(Json, value)


def strings_in(value: Json) -> Iterator[str]:
    """Every text in a JSON value; keys are no templates."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)


def render_all(value: Json, bound: Bound, lookup: Callable[[Ref], Json]) -> Json:
    """A JSON value with every text in it rendered."""
    if isinstance(value, str):
        return render(parse(value), bound, lookup)
    if isinstance(value, list):
        return [render_all(item, bound, lookup) for item in value]
    if isinstance(value, dict):
        return {key: render_all(item, bound, lookup) for key, item in value.items()}
    return value
