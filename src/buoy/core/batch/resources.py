"""Resources of jobs: which queue offers them, what fits into a machine, and limits after a correction.

Invariants: the name of a group and its resources are the same thing, in both directions. A corrected limit is never
below the old one and never above its cap, unless the old one was above it already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from buoy.core.limits import MEMORY_BYTES_MAX
from buoy.core.spec.model import Resources
from buoy.errors import BadInput

# What a job without `resources` needs.
ONE_CPU = Resources()
MEMORY_STEP_BYTES = 2**20
TIME_STEP_S = 60.0
# The memory of a job without a limit whose allocation ran out of it: a guess from which limits can grow.
MEMORY_GUESS_BYTES = 2**30
MULTIPLIER_MAX = 100.0

_GROUP = re.compile(r"c(\d+)m(\d*)g(\d+)n(\d+)t(\d*)\Z")

# Why a job failed, as far as a change of its limits could help.
Shortage: TypeAlias = Literal["memory", "time"]


class Capacity(msgspec.Struct, frozen=True):
    """What one runner has for jobs. `time_left_s` None: no end is known.

    `nodes`: its own machine, and those that jobs may use from there. All else is what each of them has.
    """

    cpus: int
    memory_bytes: int
    gpus: int = 0
    nodes: int = 1
    time_left_s: float | None = None


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """How limits grow after a job met them."""

    memory_multiplier: float = 1.5
    runtime_multiplier: float = 1.4
    memory_max_bytes: int | None = None
    time_max_s: float | None = None


@lru_cache(maxsize=1024)
def group_name(resources: Resources) -> str:
    """The name of the group of all jobs with these resources. It is a part of a queue's name."""
    memory = "" if resources.memory_bytes is None else resources.memory_bytes
    time = "" if resources.time_s is None else math.ceil(resources.time_s)
    return f"c{resources.cpus}m{memory}g{resources.gpus}n{resources.nodes}t{time}"


def group_resources(name: str) -> Resources:
    """The resources that a group has in its name."""
    found = _GROUP.match(name)
    if found is None:
        raise BadInput(f"group {name[:60]!r} is not allowed: expected a name such as c8m17179869184g1n1t7200")
    cpus, memory, gpus, nodes, time = found.groups()
    return Resources(
        cpus=int(cpus),
        memory_bytes=int(memory) if memory else None,
        gpus=int(gpus),
        nodes=int(nodes),
        time_s=float(time) if time else None,
    )


def job_queue(run_id: str, resources: Resources) -> str:
    """The queue on which a run offers jobs of these resources."""
    return f"{run_id}.{group_name(resources)}"


def queue_resources(run_id: str, queue: str) -> Resources | None:
    """The resources of a queue of that run; None if it is the queue of something else."""
    if not queue.startswith(f"{run_id}."):
        return None
    found = _GROUP.match(queue[len(run_id) + 1 :])
    return None if found is None else group_resources(found[0])


def lack(needed: Resources, capacity: Capacity) -> str | None:
    """The first resource that this machine lacks, with both amounts; None if the job fits."""
    pairs = (
        ("cpus", needed.cpus, capacity.cpus),
        ("gpus", needed.gpus, capacity.gpus),
        ("nodes", needed.nodes, capacity.nodes),
        ("bytes of memory", needed.memory_bytes or 0, capacity.memory_bytes),
    )
    for name, wanted, there in pairs:
        if wanted > there:
            return f"it needs {wanted:,} {name}, and the runner has {there:,}"
    left = capacity.time_left_s
    if needed.time_s is not None and left is not None and needed.time_s > left:
        return f"it needs {needed.time_s:g} s, and the runner has {max(0.0, left):g} s left"
    return None


def fits(needed: Resources, capacity: Capacity) -> bool:
    """Whether such a job can run there."""
    return lack(needed, capacity) is None


def fits_shape(needed: Resources, made_for: Resources) -> bool:
    """Whether a place that was made for one kind of job is large enough for another. Time is another matter."""
    if needed.cpus > made_for.cpus or needed.gpus > made_for.gpus or needed.nodes > made_for.nodes:
        return False
    wanted, there = needed.memory_bytes, made_for.memory_bytes
    return wanted is None or (there is not None and wanted <= there)


def envelope(shapes: Sequence[Resources]) -> Resources:
    """The largest of each resource: what is made for it is large enough for all of these."""
    memory = [each.memory_bytes for each in shapes if each.memory_bytes is not None]
    time_s = [each.time_s for each in shapes if each.time_s is not None]
    return Resources(
        cpus=max(each.cpus for each in shapes),
        memory_bytes=max(memory, default=None),
        gpus=max(each.gpus for each in shapes),
        nodes=max(each.nodes for each in shapes),
        time_s=max(time_s, default=None),
    )


def less(capacity: Capacity, needed: Resources) -> Capacity:
    """What is free beside a job with these resources. Only the runner's own machine has room for others."""
    return Capacity(
        capacity.cpus - needed.cpus,
        capacity.memory_bytes - (needed.memory_bytes or 0),
        capacity.gpus - needed.gpus,
        capacity.nodes - (needed.nodes - 1),
        capacity.time_left_s,
    )


def corrected(old: Resources, shortage: Shortage, rule: Correction, peak_memory_bytes: int | None = None) -> Resources:
    """The resources for the next attempt of a job that met a limit.

    The base is the old limit, or what the job was seen to use if that is more. Without a limit nothing changes.
    """
    if shortage == "memory":
        if old.memory_bytes is None:
            return old
        base = max(old.memory_bytes, peak_memory_bytes or 0)
        wanted = _raised(old.memory_bytes, base * rule.memory_multiplier, rule.memory_max_bytes, MEMORY_STEP_BYTES)
        return msgspec.structs.replace(old, memory_bytes=int(wanted))
    if old.time_s is None:
        return old
    wanted = _raised(old.time_s, old.time_s * rule.runtime_multiplier, rule.time_max_s, TIME_STEP_S)
    return msgspec.structs.replace(old, time_s=wanted)


def _raised(old: float, wanted: float, cap: float | None, step: float) -> float:
    """Rounded up to whole steps, capped, and at least the old limit."""
    rounded = math.ceil(wanted / step) * step
    return max(old, rounded if cap is None else min(rounded, cap))


def check_correction(rule: Correction) -> Correction:
    """The rule, or a refusal: a multiplier below 1 would lower a limit that was too low already."""
    for name, value in (("memory", rule.memory_multiplier), ("runtime", rule.runtime_multiplier)):
        if not 1.0 <= value <= MULTIPLIER_MAX:
            raise BadInput(f"{name} multiplier {value:g} is not allowed: choose 1 to {MULTIPLIER_MAX:g}")
    if rule.time_max_s is not None and rule.time_max_s <= 0:
        raise BadInput(f"a longest time of {rule.time_max_s:g} s is not allowed: choose more than nothing")
    if rule.memory_max_bytes is not None and rule.memory_max_bytes > MEMORY_BYTES_MAX:
        raise BadInput("a largest memory of more than 1 PiB is not allowed: no machine has that; choose less")
    return rule
