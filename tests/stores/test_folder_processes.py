"""Real processes on one folder store, killed again and again: every run still ends, once, with each step done once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.ports.records import RunQuery
from buoy.stores.objects.folder_store import FolderStore
from buoy.testing.contracts.harness import Author, message

from .folder_worker import STEPS, RealClock

ROOT = Path(__file__).resolve().parents[2]
RUNS = 40
WORKERS = 3
KILLS = 12
ROUNDS_MAX = 2_000


class WorkerProcesses:
    """The workers. Each killed one is declared dead and replaced under a new name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        self.working: dict[str, subprocess.Popen[str]] = {}

    async def start(self) -> None:
        """One more, at work when this returns."""
        name = f"worker-{self._started}"
        self._started += 1
        command = [sys.executable, "-m", "tests.stores.folder_worker", str(self._folder), name]
        process = self.working[name] = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "ready\n"

    def kill(self, name: str) -> None:
        process = self.working.pop(name)
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_runs_survive_workers_that_are_killed_at_any_moment(tmp_path: Path, seed: int) -> None:
    workers = WorkerProcesses(tmp_path / "store")
    try:
        asyncio.run(_play(workers, tmp_path / "store", random.Random(seed)))
    finally:
        for name in list(workers.working):
            workers.kill(name)


async def _play(workers: WorkerProcesses, folder: Path, rng: random.Random) -> None:
    store = await FolderStore.open(folder, clock=RealClock(), durable=False)
    names = [RunId(f"run-{number}") for number in range(RUNS)]
    for name in names:
        await Author(name, RealClock(), iter(range(10**6)), {}).create(store)
    for _ in range(WORKERS):
        await workers.start()
    released = 0
    for turn in range(ROUNDS_MAX):
        await asyncio.sleep(rng.random() * 0.3)
        await store.send(message(rng.choice(names), f"m{turn}"))
        if turn < KILLS:
            name = rng.choice(sorted(workers.working))
            workers.kill(name)
            released += await store.declare_dead(RunnerId(name), "killed", cause="taken_over", evidence={})
            await workers.start()
        for orphan in await store.orphans(100):
            await store.requeue_orphan(orphan)
        if turn >= KILLS and await _ended(store) == RUNS:
            break
    assert released > 0, "no process was killed while it held a run: nothing was tested"
    await _check(store, names)
    await store.close()


async def _ended(store: FolderStore) -> int:
    return len((await store.find_runs(RunQuery(statuses=("completed",)))).runs)


async def _check(store: FolderStore, names: list[RunId]) -> None:
    for name in names:
        log = await store.events(name)
        bodies = [type(event.body) for event in log]
        assert bodies.count(e.WorkflowCompleted) == 1, name
        assert bodies.count(e.StepStarted) == bodies.count(e.StepCompleted) == STEPS
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
