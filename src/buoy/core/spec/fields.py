"""Spec fields: single values of a spec, each read with what was expected there.

Invariant: every method gives a sound value in any case, and notes what was wrong, so that reading continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from buoy.core.durations import seconds
from buoy.core.ids import check_name
from buoy.core.spec.model import Place
from buoy.core.spec.problems import Problems, names, shown
from buoy.core.spec.template import parse
from buoy.errors import BadInput

T = TypeVar("T")


class Fields:
    """Reads single values."""

    def __init__(self, problems: Problems) -> None:
        self._add = problems.add

    def _keys(self, data: dict[Any, Any], known: tuple[str, ...], place: Place) -> None:
        for key in data:
            if key not in known:
                self._add((*place, str(key)), f"unknown key; {names(known, str(key))}")

    def _name(self, value: object, place: Place) -> str:
        if not isinstance(value, str):
            self._add(place, f"expected a name, found {shown(value)}")
            return "unknown"
        self._attempt(lambda: check_name(value, "spec" if place == ("name",) else str(place[-1])), place)
        return value

    def _text(self, data: dict[str, Any], key: str, place: Place, *, template: bool = True) -> str | None:
        value, here = data.get(key), (*place, key)
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            self._add(here, f"expected a text, found {shown(value)}")
            return None
        return self._template(value, here) if template else value

    def _texts(self, data: dict[str, Any], key: str, place: Place) -> tuple[str, ...]:
        value = data.get(key, ())
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list | tuple):
            self._add((*place, key), f"expected a list of texts, found {shown(value)}")
            return ()
        good = []
        for number, each in enumerate(value):
            text = self._template(each, (*place, key, number)) if isinstance(each, str) and each else None
            if text is not None:
                good.append(text)
            elif not isinstance(each, str) or not each:
                self._add((*place, key, number), f"expected a text, found {shown(each)}")
        return tuple(good)

    def _paths(self, data: dict[str, Any], key: str, place: Place) -> tuple[str, ...]:
        found = self._texts(data, key, place) if key in data else ()
        for number, each in enumerate(found):
            if "{{" in each or "\0" in each:
                self._add((*place, key, number), "a file name may hold parameters, but no references")
        return found

    def _one_of(self, data: dict[str, Any], key: str, known: tuple[str, ...], place: Place = ()) -> str:
        """One of the known words; the first is the default."""
        value = data.get(key, known[0])
        if value not in known:
            self._add((*place, key), f"expected one of {', '.join(dict.fromkeys(known))}; found {shown(value)}")
            return known[0]
        return str(value)

    def _count(
        self, data: dict[str, Any], key: str, place: Place, default: int | None, least: int, most: int
    ) -> int | None:
        value = data.get(key, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._add((*place, key), f"expected a whole number from {least} to {most}, found {shown(value)}")
            return default
        return value

    def _duration(self, data: dict[str, Any], key: str, place: Place, default: float | None) -> float | None:
        if key not in data:
            return default
        found = self._attempt(lambda: seconds(data[key], key), (*place, key))
        if found == 0:
            self._add((*place, key), "expected more than nothing")
        return found or default

    def _flag(self, data: dict[str, Any], key: str, place: Place) -> bool:
        value = data.get(key, False)
        if not isinstance(value, bool):
            self._add((*place, key), f"expected true or false, found {shown(value)}")
        return bool(value)

    def _attempt(self, work: Callable[[], T], place: Place) -> T | None:
        try:
            return work()
        except BadInput as error:
            self._add(place, str(error))
            return None

    def _template(self, text: str, place: Place) -> str | None:
        """The text; None if it is no template, so that no later check repeats the error."""
        if "{" in text and self._attempt(lambda: parse(text), place) is None:
            return None
        return text
