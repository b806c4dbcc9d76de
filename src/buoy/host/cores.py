"""Cores: how many processors this process may use, by its affinity and by the quota of its control group.

Invariant: what cannot be read limits nothing; at least one core is there.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cores(cgroups: Path = _CGROUPS) -> int:
    """Whole cores. A quota of one and a half counts as two: a half that idles is worth less than one that works."""
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroups)
    return known if quota is None else max(1, min(known, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """Cores' worth of time that the control group gets, in either version's files."""
    return _ratio(_words(cgroups / "cpu.max")) or _ratio(
        _words(cgroups / "cpu" / "cpu.cfs_quota_us") + _words(cgroups / "cpu" / "cpu.cfs_period_us")
    )


def _ratio(words: list[str]) -> float | None:
    """None without a limit: version 2 says `max`, version 1 says -1."""
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (OSError, UnicodeDecodeError):
        return []
