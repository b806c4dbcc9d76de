"""The house rule over class names: one class per name. It needs all sources at once, so it stands beside the others."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Protocol

# Exceptions, each with its reason. A test fails when one is no longer needed.
SHARED_NAMES = {
    "StepFailed": "an error that workflow code catches, and the event that records it: users know both by this name",
    "Finding": "`buoy.testing` has it as a public name; the one of `core.diagnosis` is the word of all documents",
}


class Written(Protocol):
    """A source: its place below the package, and its text."""

    @property
    def place(self) -> str: ...

    @property
    def tree(self) -> ast.Module: ...


def shared_class_names(sources: Iterable[Written]) -> Iterator[str]:
    """Public classes of the package that have one name. Stores are forms that are filled in: they share names."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        if source.place.startswith("simulator/"):
            continue
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(source.place)
    for name, places in sorted(found.items()):
        if len(_apart(places)) > 1 and name not in SHARED_NAMES:
            yield f"{name}: {', '.join(places)}"


def _apart(places: list[str]) -> set[str]:
    return {"stores" if place.startswith("stores/") else place for place in places}
