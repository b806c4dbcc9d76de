"""Names of machines: lists as Slurm writes them, and those that one runner in an allocation may use.

Invariants: an expanded list is bounded. A runner that is beside others in its allocation has its own machine only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from buoy.core.limits import NODES_MAX
from buoy.errors import BadInput

_PART = re.compile(r"(?:[^,\[\]\s]|\[[0-9,-]+\])+")
_RANGES = re.compile(r"\[([0-9,-]+)\]")
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z")


def node_names(text: str) -> tuple[str, ...]:
    """The machines of a list such as `n1,m[01-03,7]`, in order."""
    found: list[str] = []
    place = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None:
            raise _bad(text)
        found.extend(_expanded(part[0], text))
        if len(found) > NODES_MAX:
            raise BadInput(f"too many machines in {text[:60]!r}; the limit is {NODES_MAX:,}")
        place = part.end()
        if text[place : place + 1] not in ("", ","):
            raise _bad(text)
        place += 1
    return tuple(dict.fromkeys(found))


def _expanded(part: str, text: str) -> list[str]:
    ranges = _RANGES.search(part)
    if ranges is None:
        return [part]
    head, rest = part[: ranges.start()], _expanded(part[ranges.end() :], text)
    numbers: list[str] = []
    for span in ranges[1].split(","):
        ends = _SPAN.match(span)
        if ends is None:
            raise _bad(text)
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first or (last - first + len(numbers) + 1) * len(rest) > NODES_MAX:
            raise _bad(text)
        numbers.extend(str(number).zfill(len(ends[1])) for number in range(first, last + 1))
    return [f"{head}{number}{tail}" for number in numbers for tail in rest]


def _bad(text: str) -> BadInput:
    return BadInput(f"list of machines {text[:60]!r} is not allowed; expected names such as n1,n[02-05]")


def allocated_nodes(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The machines of this process's allocation at Slurm, if it is the only one that was started there; else none."""
    if variables.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        return ()
    return node_names(variables.get("SLURM_JOB_NODELIST", ""))
