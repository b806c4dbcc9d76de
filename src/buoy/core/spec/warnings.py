"""Spec warnings: what is sound as a spec, and probably not what was meant.

Invariant: a warning refuses nothing. Braces belong to shells, JSON and other languages too, so only `{name.key}` whose
name is one of this spec's own is reported: a reference has two braces, and with one it is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from buoy.core.limits import SPEC_PROBLEMS_MAX
from buoy.core.log.questions import Json
from buoy.core.spec.model import Place, Spec
from buoy.core.spec.references import texts_of
from buoy.core.spec.template import ROOTS, strings_in

# `{a.n}`, but not `{{ a.n }}`, `${a.n}`, nor with a backslash before it.
_ONE_BRACE = re.compile(r"(?<![\\${])\{\s*([A-Za-z_][\w-]*)((?:\.[\w-]+)+)\s*\}(?!\})")


def warnings_of(spec: Spec) -> list[tuple[Place, str]]:
    """Warnings for a person, each with its place; as many as a person would read."""
    steps = {step.id for step in spec.steps}
    parameters = {each.name for each in spec.parameters}
    found: list[tuple[Place, str]] = []
    for place, text, modules in _texts(spec):
        for mark in _ONE_BRACE.finditer(text):
            meant = _meant(mark[1], mark[2], steps, parameters, modules)
            if meant is not None:
                found.append((place, f"{mark[0]} has one brace and is plain text; a reference is written {meant}"))
            if len(found) >= SPEC_PROBLEMS_MAX:
                return found
    return found


def _texts(spec: Spec) -> Iterator[tuple[Place, str, set[str]]]:
    """Every template, its place, and the modules that its step has."""
    for number, step in enumerate(spec.steps):
        modules = {each.id for each in step.modules}
        for place, action in enumerate(step.actions):
            here: Place = ("steps", number, "modules", place) if step.modules else ("steps", number)
            for where, text in texts_of(action, here):
                if "{" in text:
                    yield where, text, modules
    for text in strings_in(cast(Json, spec.result)):
        yield ("result",), text, set()


def _meant(name: str, rest: str, steps: set[str], parameters: set[str], modules: set[str]) -> str | None:
    """The reference that was meant, if the name is known here."""
    if name in ROOTS:
        return f"{{{{ {name}{rest} }}}}"
    for root, known in (("modules", modules), ("steps", steps)):
        if name in known:
            return f"{{{{ {root}.{name}{rest} }}}}"
    return f"{{{name}}}" if name in parameters else None
