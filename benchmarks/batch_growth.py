"""Batch runs: what one job costs in runs of 1,000, 10,000 and 100,000 jobs, and how much is stored and sent for it.

    python benchmarks/batch_growth.py cost --jobs 1000 10000 100000
    python benchmarks/batch_growth.py requests --jobs 2000

The jobs are fakes: a shell that answers at once, so that the figures are those of the owner and of one runner, in one
process. `requests` counts what a bucket would bill, of all processes together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from counting_bucket import CountingBucket, Meter

from batch import graph
from buoy.core.batch.resources import Capacity
from buoy.core.ids import LeafId, RunId
from buoy.core.spec.problems import Problems, no_lines
from buoy.core.spec.reader import read_spec
from buoy.engine.authoring.definitions import Registry
from buoy.engine.batch.lot import LotWorkflow
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.services.room import Room
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.host.threads import SystemThreads
from buoy.operations.batch.runner import JobRunner
from buoy.operations.batch.submit import submit
from buoy.operations.targets.spec_files import Target
from buoy.ports.host import Command, CommandEnd
from buoy.ports.store import Store
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.store import ObjectStore
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.local_host import KnownDeaths, runner_info
from buoy.wiring.worker import WorkerPorts, assemble_worker

_RUN = RunId("r1")
_CPUS = 8
# Jobs that can run at the same time, whatever the size of the graph.
_WIDTH = 1_000


class FakeShell:
    """Every command succeeds at once."""

    slots = _CPUS

    async def run(self, command: Command) -> CommandEnd:
        await asyncio.sleep(0)
        return CommandEnd(exit_code=0, signal=None, peak_memory_bytes=1 << 20, duration_s=0.001, log="job.1.log")

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        return []


class NoSpool:
    """The store is always there."""

    def keep(self, run_id: RunId, leaf: LeafId, attempt: int, data: bytes) -> None:
        pass

    def confirmed(self, run_id: RunId, leaf: LeafId) -> None:
        pass

    async def read(self, run_id: RunId, leaf: LeafId, attempt: int) -> bytes | None:
        return None


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def drive(store: Store, steps: list[dict[str, object]]) -> dict[str, float]:
    """Submits the jobs and runs them to the end."""
    problems = Problems()
    spec = read_spec({"name": "graph", "steps": steps}, problems)
    problems.check("graph", no_lines)
    assert spec is not None
    clock, ids, registry = SystemClock(), SystemIds(), Registry()
    registry.add(LotWorkflow())
    info = runner_info("bench", registry, ())
    options = RunnerOptions(step_threads=1)
    ports = WorkerPorts(store, clock, ids, KnownDeaths(), SystemThreads(), store.reopen, FakeShell())
    worker = assemble_worker(ports, registry, info, options=options)
    room = Room(Capacity(_CPUS, 1 << 40), clock, "here")
    worker.runner.specs.kit.serve_jobs(room, FakeShell(), NoSpool())
    client = worker.client()
    await submit(client, Target(SpecWorkflow(spec), None), _RUN)
    jobs = JobRunner(client, worker.runner, room, _RUN, lambda text: print(text, file=sys.stderr))
    document_bytes, began = 0, _cpu_s()
    await worker.start(schedules=False)
    while not jobs.done(document := await jobs.look()):
        document_bytes = max(document_bytes, len(_encoded(document)))
        await asyncio.sleep(0.02)
    cpu_s = _cpu_s() - began
    room.close()
    await worker.stop("done", 0.0)
    return {"cpu_ms_per_job": round(1000 * cpu_s / len(steps), 3), "document_bytes_max": document_bytes}


def _encoded(document: object) -> bytes:
    return msgspec.json.encode(document)


async def cost(jobs: int) -> dict[str, float]:
    """One size, in a process of its own: peak memory does not shrink."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "buoy.db"
        clock = SystemClock()
        store = await SqliteStore.open(path, clock=clock)
        steps = [each._asdict() for each in graph(jobs, _WIDTH)]
        found = await drive(store, steps)
        await store.close()
        return {"jobs": jobs, "edges": sum(len(each["needs"]) for each in steps), **found,
                "peak_mb": round(_peak_mb(), 1), **_stored(path, jobs)}  # fmt: skip


def _stored(path: Path, jobs: int) -> dict[str, float]:
    """What the store has, per job."""
    with sqlite3.connect(path) as db:
        (runs,) = db.execute("SELECT count(*) FROM runs").fetchone()
        (messages,) = db.execute("SELECT count(*) FROM inbox").fetchone()
    return {
        "file_bytes_per_job": round(path.stat().st_size / jobs, 1),
        "lots": runs - 1,
        "jobs_per_message": round(jobs / max(1, messages), 1),
    }


async def requests(jobs: int) -> dict[str, float]:
    """What a bucket would bill for jobs without needs."""
    meter = Meter()
    store = await ObjectStore.on(CountingBucket(MemoryBucket(), meter), clock=SystemClock())
    # Of that time limit 66 make a lot.
    limits = {"time": "0.9s"}
    found = await drive(store, [{"id": f"j{k}", "run": "true", "needs": [], "resources": limits} for k in range(jobs)])
    await store.close()
    total = sum(meter.total)
    return {"jobs": jobs, **found, **meter.total._asdict(), "requests_per_job": round(total / jobs, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["cost", "requests"])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    given = parser.parse_args()
    run = cost if given.what == "cost" else requests
    for jobs in given.jobs:
        child = os.fork()
        if child == 0:
            print(json.dumps(asyncio.run(run(jobs))), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
