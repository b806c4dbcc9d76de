"""Statements: the SQL of the `.sql` files, with the name of the schema filled in once.

Invariant: a statement is fixed when a store is opened. Values only ever travel as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

_FILES = ("opening", "commit", "runs", "tasks", "archive", "schedules", "tokens", "integrity")
_MARK = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*$", re.MULTILINE)
_ADDITIVE = re.compile(r"^-- additive: (yes|no)$", re.MULTILINE)


class SchemaMigration(NamedTuple):
    """One numbered change of the schema. Additive: code that does not know it works on."""

    number: int
    name: str
    additive: bool
    TEXT: bytes


def load_statements(schema: str, channel: str) -> Mapping[str, bytes]:
    """Every statement by its name. Schema and channel are quoted."""
    found: dict[str, str] = {}
    fragments = {"schema": schema, "channel": channel}
    for name in _FILES:
        text = files(__package__).joinpath("sql", f"{name}.sql").read_text()
        marks = list(_MARK.finditer(text))
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        for mark, end in zip(marks, ends, strict=False):
            part = _COMMENT.sub("", text[mark.end() : end]).strip()
            target = fragments if mark.group(1) == "fragment" else found
            target[mark.group(2)] = part.removesuffix(";")
    return {name: _filled(text, fragments).encode() for name, text in found.items()}


def load_migrations(schema: str) -> tuple[SchemaMigration, ...]:
    """All migrations in their order. `schema`: quoted."""
    found = []
    for path in sorted(files(__package__).joinpath("sql", "migrations").iterdir(), key=lambda each: each.name):
        number, _, rest = path.name.partition("_")
        text = path.read_text()
        additive = _ADDITIVE.search(text)
        assert additive is not None, f"{path.name} says whether it only adds"
        name = rest.removesuffix(".sql")
        statement = text.replace("{schema}", schema).encode()
        found.append(SchemaMigration(int(number), name, additive.group(1) == "yes", statement))
    assert [each.number for each in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1"
    return tuple(found)


def _filled(text: str, fragments: Mapping[str, str]) -> str:
    # Fragments hold fragments; the schema comes last.
    for name, fragment in [*fragments.items()][::-1]:
        text = text.replace("{" + name + "}", fragment)
    return text
