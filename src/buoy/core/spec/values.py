"""Values of specs: sizes of memory, ranges, and what the parameters of a run are.

Invariant: `"1:3"` means 1, 2, 3 (both ends), wherever a parameter's value is written: in the file or on the command
line. A text that only looks like a range is given as a list of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from buoy.core.limits import SPEC_VALUES_MAX
from buoy.core.spec.model import DIRECTORY, Parameter, Scalar, Spec
from buoy.core.spec.problems import names, shown
from buoy.errors import BadInput

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
MEMORY = r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT]?[iI]?)[bB]?\s*"
_MEMORY = re.compile(MEMORY + r"\Z")
_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::({_NUMBER}))?\Z")
_TEXT_CHARS_MAX = 1_000
# Exact in a Decimal, also after the arithmetic of a range.
_NUMBER_CHARS_MAX = 18


def memory_bytes(value: object) -> int:
    """`16GiB`, `512M`, `2g` or a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _MEMORY.match(value) if isinstance(value, str) else None
    unit = found[2].lower() if found is not None else "?"
    if found is None or unit not in _UNITS or not float(found[1]):
        raise BadInput(f"expected a size such as 512MiB or 16GiB, found {shown(value)}")
    return int(Decimal(found[1]) * _UNITS[unit])


def parameter(name: str, value: object) -> Parameter:
    """A parameter as it is written: one value, a range, or a list of values."""
    if isinstance(value, list):
        values = tuple(_scalar(each) for each in value)
        if not values:
            raise BadInput("expected at least one value, found an empty list")
        if len(set(map(str, values))) != len(values):
            raise BadInput("the same value is there twice: two steps would have one id")
        return _bounded(Parameter(name, values))
    found = _RANGE.match(value.strip()) if isinstance(value, str) else None
    if found is not None:
        return Parameter(name, _range(found[1], found[2], found[3], str(value)))
    return Parameter(name, (_scalar(value),), plain=True)


def _bounded(found: Parameter) -> Parameter:
    if len(found.values) > SPEC_VALUES_MAX:
        raise BadInput(f"{len(found.values):,} values are too many, the limit is {SPEC_VALUES_MAX:,}")
    return found


def _range(first: str, last: str, step: str | None, text: str) -> tuple[Scalar, ...]:
    if max(map(len, (first, last, step or ""))) > _NUMBER_CHARS_MAX:
        raise BadInput(f"range {shown(text)} has a number of more than {_NUMBER_CHARS_MAX} digits; write a shorter one")
    begin, end = Decimal(first), Decimal(last)
    by = Decimal(step) if step is not None else Decimal(1)
    if not by or (end - begin) * by < 0:
        raise BadInput(f"range {text!r} is empty; write first:last or first:last:step")
    count = int((end - begin) / by) + 1
    if count > SPEC_VALUES_MAX:
        raise BadInput(f"range {text!r} has {count:,} values, the limit is {SPEC_VALUES_MAX:,}")
    whole = all("." not in each for each in (first, last, step or ""))
    return tuple(int(begin + by * n) if whole else float(begin + by * n) for n in range(count))


def _scalar(value: object) -> Scalar:
    if not isinstance(value, str | int | float | bool):
        raise BadInput(f"expected a text, a number, true or false, found {shown(value)}")
    if isinstance(value, str) and (len(value) > _TEXT_CHARS_MAX or "\0" in value):
        raise BadInput(f"a text has at most {_TEXT_CHARS_MAX} characters, and no zero byte")
    return value


def chosen_parameters(spec: Spec, given: Mapping[str, object]) -> dict[str, Parameter]:
    """The parameters of one run: those of the spec, with what was given at its start."""
    found = {each.name: each for each in spec.parameters}
    found.setdefault(DIRECTORY, Parameter(DIRECTORY, (".",), plain=True))
    for name, value in given.items():
        if name not in found:
            raise BadInput(f"{spec.name} has no parameter {name!r}; {names(found, name)}")
        try:
            # A folder may have any name, "1:2" too.
            found[name] = parameter(name, [value] if name == DIRECTORY else value)
        except BadInput as error:
            raise BadInput(f"parameter {name!r}: {error}") from error
    found[DIRECTORY] = Parameter(DIRECTORY, found[DIRECTORY].values, plain=True)
    return found


def written(found: Mapping[str, Parameter]) -> dict[str, object]:
    """The parameters as the input of a run has them: plain ones as a value, the others as a list."""
    return {each.name: cast(object, each.values[0]) if each.plain else list(each.values) for each in found.values()}
