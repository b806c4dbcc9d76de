"""Spec problems: everything that is wrong with a spec, each with its place, reported at once.

Invariant: a place is a path into the data; only the reader of the file knows its lines, and only a refusal needs them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from buoy.core.limits import SPEC_PROBLEMS_MAX
from buoy.core.spec.model import Place
from buoy.errors import BadSpec, SpecProblem

# Beyond this many names a guess would take longer than the person needs.
_GUESS_MAX = 2_000

LineOf = Callable[[Place], int | None]


class Problems:
    """Gathers problems; `check` refuses if there are any."""

    def __init__(self) -> None:
        self.found: list[tuple[Place, str]] = []
        self.count = 0

    def add(self, place: Place, text: str) -> None:
        self.count += 1
        if len(self.found) < SPEC_PROBLEMS_MAX:
            self.found.append((place, text))

    def check(self, file: str, line_of: LineOf) -> None:
        """Raises `BadSpec` if something is wrong."""
        if not self.count:
            return
        listed = [SpecProblem(file, line_of(place), place_text(place), text) for place, text in self.found]
        listed.sort(key=lambda each: each.line or 0)
        raise BadSpec(tuple(listed), self.count)


def no_lines(place: Place) -> int | None:
    """For data that came from no file."""
    return None


def place_text(place: Place) -> str:
    """`steps[3].needs[0]`"""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the spec"


def shown(value: object) -> str:
    """A value in a message, not longer than a line."""
    if isinstance(value, dict):
        return f"a map with {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def names(known: Iterable[str], wrong: str = "") -> str:
    """The names that exist: the nearest one, or a few."""
    listed = list(known)
    if not listed:
        return "there is none"
    if wrong and len(listed) <= _GUESS_MAX:
        near = difflib.get_close_matches(wrong, listed, n=1)
        if near:
            return f"did you mean {near[0]!r}?"
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return f"known: {', '.join(listed[:8])}{more}"
