"""The batch script of an allocation: its runners, started again if they were killed, and the options of sbatch.

Invariants: no secret is in the script or on a command line: store and token come from a private file. Every value is
quoted. Slurm queues the job again only if a person wants that: else Buoy asks for a new allocation.
"""

from __future__ import annotations

import math
import shlex

import msgspec

from buoy.core.batch.resources import group_resources
from buoy.core.batch.sizing import SIGNAL_S
from buoy.core.batch.slurm_text import span_text
from buoy.core.log.cluster_changes import SchedulerAdded

# How often a killed runner is started again in its place.
LAUNCHES_MAX = 3


class ScriptPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where scripts run. `directory`: the folder of the run. `settings`: a private file with store and token."""

    python: str
    directory: str
    settings: str
    output_folder: str


def sbatch_options(name: str, scheduler: SchedulerAdded, place: ScriptPlace) -> list[str]:
    """The options for one allocation."""
    options = [
        f"--job-name={name}",
        f"--nodes={scheduler.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={scheduler.cpus}",
        f"--time={span_text(scheduler.walltime_s)}",
        f"--signal=TERM@{SIGNAL_S}",
        # A requeued job appends to its output: its earlier starts may say why.
        *(["--requeue", "--open-mode=append"] if scheduler.requeue else ["--no-requeue"]),
        f"--chdir={place.directory}",
        f"--output={place.output_folder}/{name}-%j.out",
    ]
    if scheduler.memory_bytes is not None:
        options.append(f"--mem={math.ceil(scheduler.memory_bytes / 2**20)}M")
    if scheduler.gpus:
        options.append(f"--gres=gpu:{scheduler.gpus}")
    if scheduler.account is not None:
        options.append(f"--account={scheduler.account}")
    if scheduler.partition is not None:
        options.append(f"--partition={scheduler.partition}")
    return options


def batch_script(run_id: str, name: str, scheduler: SchedulerAdded, place: ScriptPlace) -> str:
    """What the first node of an allocation executes: a runner on each node, or one that has all of them."""
    # A runner that fails does not end those of the other nodes.
    launcher = "srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 "
    if group_resources(scheduler.group).nodes > 1:
        launcher = ""
    return "\n".join(
        [
            "#!/bin/sh",
            f"# Runs jobs of {run_id}. Made by Buoy; `buoy slurm allocations {run_id}` shows all of its kind.",
            f". {shlex.quote(place.settings)} || exit 1",
            f"export BUOY_ALLOCATION={shlex.quote(name)}",
            "BUOY_ALLOCATION_START=$(cat /proc/sys/kernel/random/uuid); export BUOY_ALLOCATION_START",
            *scheduler.prologue.splitlines(),
            f"exec {launcher}/bin/sh -c {shlex.quote(node_script(run_id, scheduler, place))}",
            "",
        ]
    )


def node_script(run_id: str, scheduler: SchedulerAdded, place: ScriptPlace) -> str:
    """What each node executes. A runner that a signal killed has a successor in its place, which takes over."""
    command = f"{shlex.quote(place.python)} -m buoy runner --run {shlex.quote(run_id)}"
    return "\n".join(
        [
            "stopped=; trap stopped=1 TERM",
            "began=$(date +%s); launch=1",
            "while :; do",
            f"  left=$(({int(scheduler.walltime_s)} - $(date +%s) + began))",
            f"  BUOY_ALLOCATION_LAUNCH=$launch {command} --cpus {scheduler.cpus} --time-left ${{left}}s \\",
            "    ${SLURM_MEM_PER_NODE:+--memory ${SLURM_MEM_PER_NODE}MiB}",
            "  code=$?",
            # Cancelled or paused is the end of the run, and no failure of the allocation.
            "  case $code in 3|4) exit 0;; esac",
            f'  if [ "$stopped" ] || [ $code -lt 128 ] || [ $launch -ge {LAUNCHES_MAX} ]; then exit $code; fi',
            '  echo "the runner was killed (exit code $code); the next one takes over" >&2',
            "  launch=$((launch + 1))",
            "done",
        ]
    )
