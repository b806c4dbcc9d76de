"""Changes of what a batch run has at its cluster: schedulers, actions and allocations. Payload of one event.

Invariants: as for events, names and meanings never change once stored. An allocation is planned before it is submitted,
under a name that no other job has.
Absent on purpose: all but the names of allocations at the cluster. `core.batch.allocations` folds the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

Trigger: TypeAlias = Literal["on_workflow_start", "on_jobs_ready", "on_jobs_complete", "on_workflow_complete"]
# The cause of the end of an allocation that was never submitted.
REFUSED = "refused"
ActionKind: TypeAlias = Literal["schedule_nodes", "run_commands"]


class SchedulerAdded(msgspec.Struct, frozen=True, tag="scheduler_added", omit_defaults=True, kw_only=True):
    """A kind of allocation. `group`: the resources of its jobs, as a name. `places`: jobs at a time in one allocation;
    `rounds`: how many follow each other within its time."""

    name: str
    group: str
    deferred: bool
    walltime_s: float
    places: int
    rounds: int
    nodes: int = 1
    cpus: int = 1
    memory_bytes: int | None = None
    gpus: int = 0
    account: str | None = None
    partition: str | None = None
    # Lines of the batch script, before the runner starts.
    prologue: str = ""
    # Slurm may queue its allocations again under their ids.
    requeue: bool = False
    # All groups of jobs that it was made for, if there are several.
    shapes: tuple[str, ...] = ()


class AllocationsAsked(msgspec.Struct, frozen=True, tag="allocations_asked", omit_defaults=True, kw_only=True):
    """What a person asked of allocations. It holds for all later ones, until a person asks otherwise."""

    account: str | None = None
    partition: str | None = None
    profile: str | None = None
    walltime_s: float | None = None
    by_partition: bool | None = None
    requeue: bool | None = None
    single: bool | None = None
    allocations_max: int | None = None
    prologue: str | None = None


class ActionAdded(msgspec.Struct, frozen=True, tag="action_added", omit_defaults=True, kw_only=True):
    """What is to be done once, when its trigger holds: `kind` schedule_nodes asks for allocations of that scheduler.

    `is_recovery`: made by `regenerate`, and deleted when actions are reset.
    """

    action: str
    trigger: Trigger
    scheduler: str
    kind: Literal["schedule_nodes"] = "schedule_nodes"
    is_recovery: bool = False


class ActionExecuted(msgspec.Struct, frozen=True, tag="action_executed", omit_defaults=True):
    """The claim of an action: it has its effect now, or is not to have it any more.

    `begins`: commands follow, and `ActionEnded` after them. Until then it is unknown whether they ran.
    """

    action: str
    begins: bool = False


class ActionEnded(msgspec.Struct, frozen=True, tag="action_ended", omit_defaults=True):
    """The commands of an action are over. `failed`: the number of the one that did not end with exit code 0.

    Without exit code and signal it did not end in time, or could not be started: `problem` says which.
    """

    action: str
    failed: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    problem: str = ""


class ActionsReset(msgspec.Struct, frozen=True, tag="actions_reset"):
    """Recovery actions are deleted, and all others may fire again."""


class AllocationPlanned(msgspec.Struct, frozen=True, tag="allocation_planned"):
    """The intent to submit. A process that finds it without a job id looks for the name first.

    Recorded once more, it takes the intent over: of two processes that found it only one submits it.
    """

    name: str
    scheduler: str


class AllocationSubmitted(msgspec.Struct, frozen=True, tag="allocation_submitted"):
    name: str
    job_id: str
    cluster: str = ""


class AllocationActive(msgspec.Struct, frozen=True, tag="allocation_active"):
    """It runs. `restart`: how often it was queued again under the same id."""

    name: str
    restart: int = 0


class AllocationRequeued(msgspec.Struct, frozen=True, tag="allocation_requeued"):
    """It waits again under its id. `restart`: how often it was queued again by now."""

    name: str
    restart: int


class AllocationEnded(msgspec.Struct, frozen=True, tag="allocation_ended", omit_defaults=True):
    """`cause`: see `core.batch.slurm_text.Cause`. `state`: the scheduler's own word.

    Time and memory come from accounting, where it has them.
    """

    name: str
    cause: str
    state: str = ""
    elapsed_s: float | None = None
    peak_memory_bytes: int | None = None


ClusterChange: TypeAlias = (
    SchedulerAdded
    | AllocationsAsked
    | ActionAdded
    | ActionExecuted
    | ActionEnded
    | ActionsReset
    | AllocationPlanned
    | AllocationSubmitted
    | AllocationActive
    | AllocationRequeued
    | AllocationEnded
)


class ChangeCluster(msgspec.Struct, frozen=True):
    """Body of a message. `number`: 1, 2, 3...; of two writers that saw the same changes only one gets its number."""

    number: int
    changes: tuple[ClusterChange, ...]


def live_after(live: frozenset[str], changes: Iterable[ClusterChange]) -> frozenset[str]:
    """The names of the allocations that were submitted and have not ended, after these changes."""
    left = set(live)
    for change in changes:
        if isinstance(change, AllocationSubmitted):
            left.add(change.name)
        elif isinstance(change, AllocationEnded):
            left.discard(change.name)
    return frozenset(left)
