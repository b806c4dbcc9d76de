"""Step logs: under which file name the output of a leaf's attempt is kept, and back.

Invariant: a name is one part of a path, whatever the leaf, and stands for one leaf and attempt only: ids of specs hold
no dot, so it separates.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from buoy.core.ids import LeafId
from buoy.errors import BadInput

_LEAF = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:/[A-Za-z_][A-Za-z0-9_-]*)*#[0-9]+\Z")
_NAME = re.compile(r"([A-Za-z0-9_.#-]+)\.([0-9]+)\.log\Z")


class LogName(NamedTuple):
    leaf: LeafId
    attempt: int


def log_name(leaf: LeafId, attempt: int) -> str:
    """`gather.fetch#1.2.log` for the second attempt of `gather/fetch#1`."""
    if not _LEAF.match(leaf):
        raise BadInput(f"leaf {leaf[:60]!r} cannot be the name of a file")
    return f"{leaf.replace('/', '.')}.{attempt}.log"


def parse_log_name(name: str) -> LogName | None:
    """The leaf and attempt of a log file; None for any other file."""
    found = _NAME.match(name)
    if found is None:
        return None
    leaf = found[1].replace(".", "/")
    return LogName(LeafId(leaf), int(found[2])) if _LEAF.match(leaf) else None
