"""Entries of the catalogue about allocations of batch runs. `core.batch.orphans` finds what they name. Data only."""

from __future__ import annotations

from buoy.core.advice import Hint
from buoy.core.diagnosis.catalogue_entry import Entry

_SYNC = (
    Hint("correct it now", ("sync-status", "RUN")),
    Hint("see first what it would correct", ("sync-status", "RUN", "--dry-run")),
)

ALLOCATION_ENTRIES = (
    Entry(
        code="J1",
        word="allocation ended",
        title="An allocation is active, but its Slurm job has ended",
        how="Slurm ended it: time limit, preemption, a failed node, a cancellation. Runners in it could not say so.",
        remedy="The allocation is complete, with its cause. Its runners are declared dead. Their jobs are shown as "
        "failed, and the next runner runs them again as the same attempt.",
        you_can=_SYNC,
    ),
    Entry(
        code="J2",
        word="allocation vanished",
        title="An allocation ended or vanished, and no look saw it run",
        how="It was cancelled while it waited, or Slurm lost it. One look that does not find it proves nothing.",
        remedy="The allocation is complete, so that it no longer counts as help on its way.",
        you_can=_SYNC,
    ),
    Entry(
        code="J3",
        word="lost runner",
        title="A runner of jobs is registered, but its allocation is complete or its process is gone",
        how="The command that recorded the end of its allocation was killed before it declared the runner dead. Or the "
        "runner was in no allocation, and its process was killed.",
        remedy="The runner is declared dead, and the next runner takes its jobs.",
        you_can=_SYNC,
    ),
    Entry(
        code="J4",
        word="claimed, not begun",
        title="A job was claimed and never begun",
        trouble=False,
        how="Its runner was lost between the claim of the lot and the start of the job.",
        remedy="Not an issue: the lot is free when its runner is declared dead, and the next runner begins the job.",
    ),
    Entry(
        code="J5",
        word="job id not recorded",
        title="An allocation was submitted, but its job id was not recorded",
        how="The command was killed between sbatch and its record, or sbatch gave no answer.",
        remedy="The job is found by its unique name, and its id is recorded. Nothing is submitted twice.",
        you_can=_SYNC,
    ),
    Entry(
        code="J6",
        word="allocation requeued",
        title="Slurm queued an allocation again under the same id",
        how="Preemption with requeue, a failed node, or an operator. The restart count of the job shows it.",
        remedy="The runners of its earlier start are declared dead. Those of the new start take their jobs.",
        you_can=_SYNC,
    ),
    Entry(
        code="J7",
        word="no allocation left",
        title="Jobs are ready, but no allocation that could run them is at Slurm",
        how="The allocations that could run them have ended, and no command looks after the run.",
        remedy="`buoy watch RUN --recover` asks for allocations by itself; `sync-status` only reports it.",
        you_can=(Hint("ask for allocations", ("slurm", "regenerate", "RUN", "--submit")),),
    ),
)
