"""Capacity: processors, memory and graphics processors that this process may use.

Invariants: limits of all control groups above this process count. A process inside of an allocation sees its share, not
the machine. What cannot be read limits nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from buoy.core.batch.resources import Capacity
from buoy.host.cores import cores

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")
_DEVICES = Path("/dev")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def machine_capacity() -> Capacity:
    """What jobs of this process can have."""
    return Capacity(cpus=cores(), memory_bytes=memory_bytes(), gpus=len(gpu_devices()))


def memory_bytes(cgroups: Path = _CGROUPS, own: Path = _OWN, meminfo: Path = _MEMINFO) -> int:
    """The memory of the machine, or the least limit of the control groups that this process is in."""
    total = _total(meminfo)
    limits = [limit for limit in _limits(cgroups, own) if limit < total]
    return min(limits, default=total)


def _limits(cgroups: Path, own: Path) -> list[int]:
    found: list[int] = []
    for line in _lines(own):
        here = cgroups / line.rpartition(":")[2].strip().lstrip("/")
        while True:
            for name in ("memory.max", "memory.limit_in_bytes", "memory/memory.limit_in_bytes"):
                found.extend(int(word) for word in _lines(here / name) if word.strip().isdecimal())
            if here == cgroups or cgroups not in here.parents:
                break
            here = here.parent
    return found


def _total(meminfo: Path) -> int:
    for line in _lines(meminfo):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gpu_devices(devices: Path = _DEVICES, visible: str | None = os.environ.get(_VISIBLE)) -> tuple[str, ...]:
    """The devices that jobs may use, by the names that CUDA knows them by."""
    if visible is not None:
        return tuple(each.strip() for each in visible.split(",") if each.strip() not in ("", "-1", "NoDevFiles"))
    numbers = (each.name.removeprefix("nvidia") for each in devices.glob("nvidia[0-9]*"))
    return tuple(sorted((each for each in numbers if each.isdecimal()), key=int))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
