"""Slurm: how long the plan for many pending jobs takes, and how many questions a look at many allocations needs.

    python benchmarks/slurm.py plan --jobs 100000
    python benchmarks/slurm.py looks --allocations 1000

`plan` stores a run and times `regenerate --dry-run` as the command does it: it reads the log, groups the jobs and sizes
the allocations. Wanted: 10 s for 100,000 jobs. `looks` counts the commands that one `sync-status` calls. Wanted: 3.
Slurm's commands are scripts that answer from a file: neither figure is one of Slurm's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from buoy.core.batch.sizing import Wishes
from buoy.core.ids import RunId
from buoy.operations.batch.jobs import read_batch
from buoy.operations.batch.submit import submit
from buoy.operations.slurm.allocate import allocate
from buoy.operations.slurm.sync import sync_status
from buoy.operations.targets.spec_files import find_target
from buoy.wiring.app import open_client
from buoy.wiring.slurm import slurm_site

_RUN = RunId("r1")
_PLAN_S = 10.0
_CALLS = 3
_COMMAND = """\
#!/bin/sh
name=$(basename "$0")
echo "$name" >> {folder}/calls
case $name in
  sinfo) echo 'main*|64|256000|(null)|4:00:00|1000|up' ;;
  squeue) cat {folder}/queue ;;
  sacct) exit 1 ;;
  sbatch) number=$(wc -l < {folder}/calls); echo "$number" ;;
esac
"""


def install(folder: Path) -> None:
    """Commands of Slurm that answer from files in a folder."""
    (folder / "queue").touch()
    for name in ("sinfo", "squeue", "sacct", "sbatch", "scancel", "scontrol"):
        path = folder / name
        path.write_text(_COMMAND.format(folder=folder))
        path.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def write_spec(folder: Path, jobs: int) -> Path:
    """Jobs of five sizes; every fifth waits for the one before it."""
    steps = []
    for number in range(jobs):
        needs = [f"j{number - 1}"] if number % 5 == 4 else []
        resources = {"cpus": 1 + number % 5, "time": "30m"}
        steps.append({"id": f"j{number}", "run": "true", "needs": needs, "resources": resources})
    path = folder / "spec.yaml"
    path.write_text(json.dumps({"name": "many", "steps": steps}))
    return path


async def measure_plan(folder: Path, jobs: int) -> dict[str, object]:
    async with open_client(f"sqlite:///{folder / 'buoy.db'}", actor="bench") as client:
        await submit(client, find_target(str(write_spec(folder, jobs)), None, (), (), ()), _RUN)
        wall, cpu = time.perf_counter(), time.process_time()
        site = slurm_site(client, str(folder / "buoy.db"), _RUN, (await read_batch(client, _RUN)).plan)
        made = await allocate(site, _RUN, Wishes(), recovery=True, submit=False, dry_run=True)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"jobs": made.pending, "groups": len(made.groups), "wall_s": round(wall, 2), "cpu_s": round(cpu, 2),
            "peak_mib": peak, "met": cpu <= _PLAN_S}  # fmt: skip


async def measure_looks(folder: Path, allocations: int) -> dict[str, object]:
    jobs = write_spec(folder, allocations)
    spec = json.loads(jobs.read_text())
    for step in spec["steps"]:
        # One job fills a node for the whole of the longest time.
        step |= {"needs": [], "resources": {"cpus": 64, "time": "3h"}}
    jobs.write_text(json.dumps(spec))
    async with open_client(f"sqlite:///{folder / 'buoy.db'}", actor="bench") as client:
        await submit(client, find_target(str(jobs), None, (), (), ()), _RUN)
        site = slurm_site(client, str(folder / "buoy.db"), _RUN, (await read_batch(client, _RUN)).plan)
        wishes = Wishes(allocations_max=allocations)
        made = await allocate(site, _RUN, wishes, recovery=True, submit=True)
        ids = [each.job_id for each in made.submitted]
        # Half of them run, the other half is gone.
        rows = [f"{each.job_id}|{each.name}|RUNNING|None|0|0|n1|pond|2:00:00|" for each in made.submitted]
        (folder / "queue").write_text("\n".join(rows[: len(rows) // 2]))
        (folder / "calls").write_text("")
        wall, cpu = time.perf_counter(), time.process_time()
        synced, _ = await sync_status(client, site.batch, _RUN, missed=None)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    calls = (folder / "calls").read_text().split()
    return {"allocations": len(ids), "lost": len(synced.orphans), "calls": calls, "wall_s": round(wall, 2),
            "cpu_s": round(cpu, 2), "met": len(calls) <= _CALLS}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plan", "looks"])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--allocations", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder)
        os.chdir(folder)
        work = measure_plan(folder, given.jobs) if given.what == "plan" else measure_looks(folder, given.allocations)
        found = asyncio.run(work)
    print(json.dumps(found))
    if not found["met"]:
        print("NOT MET", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
