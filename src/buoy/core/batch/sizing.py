"""Sizes of allocations: which partition serves a group of jobs, how many jobs fit, and how many allocations that takes.

Invariants: the number of allocations follows from the time that these allocations ask for, not from the longest time
of the partition. What live allocations already serve is subtracted, so planning twice asks for nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from buoy.core.batch.resources import group_name
from buoy.core.batch.slurm_text import Partition, span_text
from buoy.core.log.cluster_changes import AllocationsAsked, SchedulerAdded
from buoy.core.spec.model import Resources
from buoy.errors import BadInput

# The time of a job that has no limit, for the number of allocations only.
JOB_GUESS_S = 600.0
WALLTIME_S = 3_600.0
# A runner gives jobs back before its time is over, and takes none that needs longer than what is left.
WALLTIME_MARGIN_S = 180.0
ALLOCATIONS_MAX = 50
# Slurm asks the runners to stop that long before the end.
SIGNAL_S = 90
# The part of a short allocation that counts as its end.
_END_SHARE = 0.1
# What a runner and its guard take beside their jobs. Slurm counts it: without it a job is killed below its own limit.
RUNNER_BYTES = 256 * 2**20


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants of allocations. None: as the jobs and the cluster have it."""

    account: str | None = None
    partition: str | None = None
    walltime_s: float | None = None
    # Jobs that need longer than that are refused. Else their allocations get what they need.
    walltime_firm: bool = True
    allocations_max: int = ALLOCATIONS_MAX
    # One allocation with several nodes instead of several with one.
    single: bool = False
    # Lines for the batch script, before the runner starts.
    prologue: str = ""
    # The partitions of a profile; none: the cluster is asked.
    partitions: tuple[Partition, ...] = ()
    # Jobs that run in the same partition share a scheduler, though they need different resources.
    by_partition: bool = False
    # Slurm queues an allocation again under its id when it is preempted or its node fails.
    requeue: bool = False
    # Where these come from: recorded with a plan, for the next one.
    asked: AllocationsAsked = AllocationsAsked()


def scheduler_for(
    name: str, needed: Resources, jobs: int, *, deferred: bool, wishes: Wishes, partitions: Sequence[Partition]
) -> SchedulerAdded:
    """The allocation that serves this number of jobs with these resources. Refuses if no node is large enough."""
    partition = partition_for(needed, wishes, partitions)
    walltime_s = _walltime_s(needed, wishes, partition)
    # A job of several nodes has all nodes of its allocation for itself.
    at_once = 1 if needed.nodes > 1 else max(1, min(jobs, _places(needed, partition)))
    rounds = max(1, int((walltime_s - WALLTIME_MARGIN_S) // (needed.time_s or min(JOB_GUESS_S, walltime_s))))
    nodes = needed.nodes
    if wishes.single and nodes == 1:
        nodes = min(max(1, partition.nodes), math.ceil(jobs / (at_once * rounds)))
    return SchedulerAdded(
        name=name,
        group=group_name(needed),
        deferred=deferred,
        walltime_s=walltime_s,
        places=at_once * (1 if needed.nodes > 1 else nodes),
        rounds=rounds,
        nodes=nodes,
        cpus=at_once * needed.cpus,
        memory_bytes=_memory_bytes(needed, at_once, partition),
        gpus=at_once * needed.gpus,
        account=wishes.account,
        partition=wishes.partition or (None if partition.default else partition.name),
        prologue=wishes.prologue,
        requeue=wishes.requeue,
    )


def rounds_left(scheduler: SchedulerAdded, needed: Resources, left_s: float) -> int:
    """How many jobs can still follow each other in an allocation that has so much time left.

    A job without a time limit begins as long as the runner takes jobs.
    """
    usable_s = max(0.0, left_s - min(SIGNAL_S, _END_SHARE * scheduler.walltime_s))
    if needed.time_s is None:
        return min(scheduler.rounds, math.ceil(usable_s / JOB_GUESS_S))
    return min(scheduler.rounds, int(usable_s // needed.time_s))


def _memory_bytes(needed: Resources, at_once: int, partition: Partition) -> int | None:
    """The memory of its jobs, and that of the runner as far as the node has it."""
    if needed.memory_bytes is None:
        return None
    jobs = at_once * needed.memory_bytes
    return max(jobs, min(jobs + RUNNER_BYTES, partition.memory_bytes))


def allocations_needed(scheduler: SchedulerAdded, jobs: int, served: int, allowed: int) -> int:
    """How many further allocations of that kind these jobs need, and at most so many as are allowed."""
    left = jobs - served
    if left <= 0:
        return 0
    return min(max(0, allowed), math.ceil(left / (scheduler.places * scheduler.rounds)))


def partition_for(needed: Resources, wishes: Wishes, partitions: Sequence[Partition]) -> Partition:
    """The partition that was named; else the default one, if such a job fits there by size and time; else any other."""
    up = [each for each in partitions if each.up]
    named = [each for each in up if each.name == wishes.partition]
    if wishes.partition is not None and not named:
        known = ", ".join(dict.fromkeys(each.name for each in up)) or "none"
        raise BadInput(f"unknown partition {wishes.partition!r}; the cluster has {known}")
    chosen = named or [each for each in up if not each.by_name]
    large = [each for each in chosen if _places(needed, each)]
    if not large:
        where = f"partition {wishes.partition}" if named else "the cluster"
        advice = "name another --partition" if named else "lower their resources"
        raise BadInput(f"no node of {where} is large enough for jobs of {group_name(needed)}; {advice}")
    least_s = _asked_s(needed, wishes) or _least_s(needed)
    fitting = [each for each in large if each.time_max_s is None or each.time_max_s >= least_s] or large
    return min(fitting, key=lambda each: _wait(each, needed))


def _wait(each: Partition, needed: Resources) -> tuple[bool, bool, int, int, float]:
    """The smallest node with the shortest time waits the least. Graphics processors are left to those who need them."""
    time_s = math.inf if each.time_max_s is None else each.time_max_s
    return not each.default, each.gpus > 0 and not needed.gpus, each.cpus, each.memory_bytes, time_s


def _places(needed: Resources, partition: Partition) -> int:
    if needed.nodes > partition.nodes:
        return 0
    found = [partition.cpus // needed.cpus]
    if needed.memory_bytes:
        found.append(partition.memory_bytes // needed.memory_bytes)
    if needed.gpus:
        found.append(partition.gpus // needed.gpus)
    return min(found)


def _walltime_s(needed: Resources, wishes: Wishes, partition: Partition) -> float:
    least = _least_s(needed)
    limit = partition.time_max_s
    wanted = _asked_s(needed, wishes) or max(WALLTIME_S, least)
    found = wanted if limit is None else min(wanted, limit)
    if found < least:
        raise BadInput(
            f"walltime {span_text(found)} is too short: jobs of {group_name(needed)} need {span_text(least)} with the "
            "margin of a runner; raise --walltime, or name another --partition"
        )
    return found


def _asked_s(needed: Resources, wishes: Wishes) -> float | None:
    asked = wishes.walltime_s
    return asked if asked is None or wishes.walltime_firm else max(asked, _least_s(needed))


def _least_s(needed: Resources) -> float:
    return (needed.time_s or 0.0) + WALLTIME_MARGIN_S
