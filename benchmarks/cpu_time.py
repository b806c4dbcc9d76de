"""Processor time of a process and all its descendants, also of those that have ended and were waited for.

Wall-clock figures of a busy machine say little; processor time says what the work costs. Linux only.
"""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PPID, _USER, _CHILDREN_SYSTEM = 1, 11, 14


def tree_cpu_s(pid: int) -> float:
    """User and system time so far."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name of a process may hold anything, so that fields count from behind it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended, and its parent's times hold it
        parents[int(folder.name)] = int(fields[_PPID])
        used[int(folder.name)] = sum(map(int, fields[_USER : _CHILDREN_SYSTEM + 1]))
    return sum(ticks for each, ticks in used.items() if _descends(each, pid, parents)) / _TICKS_PER_S


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
