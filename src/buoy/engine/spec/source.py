"""Source: spec files, YAML or JSON to plain data, with the line of everything.

Invariants: YAML of version 1.2's core rules: only `true` and `false` are truth values (`yes` is a text), `1:3` is a
text, dates are texts. A key that is there twice, more than one document, tags, and what is too large, too deep or
endless are refused, with the line. Lines are looked up by a second reading, and only when something is wrong.
Absent on purpose: PyYAML's own constructors. They take five times as long, and tags make objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from buoy.core.limits import SPEC_BYTES_MAX, SPEC_DEPTH_MAX, SPEC_NODES_MAX
from buoy.core.spec.model import Place
from buoy.errors import BadSpec, SpecProblem

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_DIGITS_MAX = 300
_STR_TAG = "tag:yaml.org,2002:str"


class SpecSource:
    """A spec file as it was read: its data, and its lines for those who ask."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text
        self._lines: Any = None
        self.data: Any = self._read()

    def line_of(self, place: Place) -> int | None:
        """The line on which that part of the data begins, or the nearest part around it that is there."""
        if self._lines is None:
            self._lines = _Builder(self.name, self._text, lines=True).build()
        node, line = self._lines, None
        for part in (None, *place):
            if part is not None:
                below = node[1]
                if not isinstance(below, dict) or part not in below:
                    break
                node = below[part]
            line = node[0]
        return line

    def _read(self) -> Any:
        if self.name.endswith(".json"):
            try:
                return msgspec.json.decode(self._text)
            except (msgspec.DecodeError, RecursionError):
                pass  # YAML reads JSON too, and knows the line
        return _Builder(self.name, self._text, lines=False).build()


def read_source(path: Path) -> SpecSource:
    """The file's content, or a refusal."""
    name = str(path)
    try:
        size = path.stat().st_size
        if size > SPEC_BYTES_MAX:
            raise refusal(name, None, f"the file has {size:,} bytes, the limit is {SPEC_BYTES_MAX:,}; use parameters")
        return SpecSource(name, path.read_bytes().decode())
    except OSError as error:
        raise refusal(name, None, f"the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise refusal(
            name, None, f"expected UTF-8, found other bytes at {error.start}; save the file as UTF-8"
        ) from error


def refusal(name: str, line: int | None, text: str) -> BadSpec:
    return BadSpec((SpecProblem(name, line, "the file", text),))


class _Builder:
    """Makes data out of the events of the parser. With `lines`, each value is a pair of its line and what is below."""

    def __init__(self, name: str, text: str, *, lines: bool) -> None:
        self._name = name
        self._text = text
        self._with_lines = lines
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._depth = 0
        # Values made so far; an alias counts as often as it is used.
        self._nodes = 0

    def build(self) -> Any:
        try:
            events = iter(yaml.parse(self._text, Loader=_LOADER))
            next(events)
            first = next(events)
            if isinstance(first, yaml.StreamEndEvent):
                raise refusal(self._name, 1, "the file is empty; expected a map with name and steps")
            found = self._value(next(events), events)
            next(events)
            extra = next(events)
            if not isinstance(extra, yaml.StreamEndEvent):
                raise self._wrong(extra, "a second document begins here; expected one spec per file")
            return found
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = None if mark is None else mark.line + 1
            there = self._text.splitlines()[mark.line : mark.line + 1] if mark is not None else []
            raise refusal(self._name, line, f"not YAML: {_yaml_problem(error, ''.join(there))}") from error
        except yaml.YAMLError as error:
            raise refusal(self._name, None, f"not YAML: {error}") from error

    def _value(self, event: Any, events: Iterator[Any]) -> Any:
        kind = type(event)
        self._nodes += 1
        if kind is yaml.ScalarEvent:
            made = self._scalar(event)
            return (_line(event), None) if self._with_lines else self._kept(event, made, 1)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        before = self._nodes
        self._depth += 1
        if self._depth > SPEC_DEPTH_MAX:
            raise self._wrong(event, f"nested more than {SPEC_DEPTH_MAX} deep")
        if event.tag is not None and event.tag != "!":
            raise self._wrong(event, f"tag {event.tag!r} is not allowed in a spec")
        made = self._map(events) if kind is yaml.MappingStartEvent else self._list(events)
        self._depth -= 1
        if self._nodes > SPEC_NODES_MAX:
            raise self._wrong(event, f"more than {SPEC_NODES_MAX:,} values, aliases counted as often as they are used")
        if self._with_lines:
            return self._kept(event, (_line(event), made), self._nodes - before)
        return self._kept(event, made, self._nodes - before)

    def _kept(self, event: Any, made: Any, nodes: int) -> Any:
        if event.anchor is not None:
            self._anchors[event.anchor] = (made, nodes)
        return made

    def _alias(self, event: Any) -> Any:
        # An anchor is known once its value is complete, so nothing can contain itself.
        if event.anchor not in self._anchors:
            raise self._wrong(event, f"*{event.anchor} refers to nothing before it")
        made, nodes = self._anchors[event.anchor]
        self._nodes += nodes
        return made

    def _list(self, events: Iterator[Any]) -> Any:
        items = []
        while type(event := next(events)) is not yaml.SequenceEndEvent:
            items.append(self._value(event, events))
        return dict(enumerate(items)) if self._with_lines else items

    def _map(self, events: Iterator[Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while type(event := next(events)) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                braces = "; put a value that begins with '{' in quotes" if type(event) is yaml.MappingStartEvent else ""
                raise self._wrong(event, f"a key must be a text{braces}")
            key = event.value
            if key in found:
                raise self._wrong(event, f"key {key!r} is there twice")
            value = self._value(next(events), events)
            # A value on the lines below its key is looked for at the key.
            found[key] = (_line(event), value[1]) if self._with_lines else value
        return found

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.tag is not None and event.tag not in ("!", _STR_TAG):
            raise self._wrong(event, f"tag {event.tag!r} is not allowed in a spec")
        if not event.implicit[0] or event.tag is not None:
            return text
        first = text[:1]
        if first.isdigit() or first in "+-.":
            if _INT.match(text) and len(text) <= _DIGITS_MAX:
                return int(text)
            if _FLOAT.match(text) and abs(float(text)) != float("inf"):
                return float(text)
            return text
        return _WORDS.get(text, text)

    def _wrong(self, event: Any, text: str) -> BadSpec:
        return refusal(self._name, _line(event), text)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _yaml_problem(error: yaml.MarkedYAMLError, line: str) -> str:
    """The parser's words are about its grammar. A person has to look for a tab, a colon in a value, or the indentation.

    A command with a colon is the commonest: `run: echo 'rows: 7'` is a map in a map for the parser.
    """
    indent = line[: len(line) - len(line.lstrip())]
    key, colon, _ = line[: _column(error)].strip(" -").partition(": ")
    if chr(9) in indent:
        hint = "indent with spaces, not tabs"
    elif colon and line[_column(error) :].startswith(":"):
        below = f", or on lines of its own below `{key}: |`" if key.isidentifier() else ""
        hint = f"put the value in quotes{below}: it holds ': '"
    else:
        hint = "look at the indentation, the brackets and the quotes of this line and the one before"
    return f"{error.problem or error.context}; {hint}"


def _column(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return 0 if mark is None else int(mark.column)
