"""Runners that are killed, stopped and halted at random: every job completes, and only their jobs run twice.

The long form: python -m pytest -m slow tests/batch/test_storm.py
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import defaultdict
from typing import Any

import pytest

from tests.batch.conftest import Batch
from tests.batch.trace_graphs import SHAPES, Graph
from tests.patience import PATIENCE_S, wait_until

_CPUS = 2


def _layers(jobs: int) -> Graph:
    """Four layers; each job needs two of the layer before."""
    width = jobs // 4
    places = [divmod(number, width) for number in range(jobs)]
    return {
        f"j{layer}_{place}": [f"j{layer - 1}_{(place + each) % width}" for each in (0, 1)] if layer else []
        for layer, place in places
    }


def _spec(graph: Graph, job_s: float) -> dict[str, Any]:
    """Each job looks for what those that it needs have made. The parent of its guard is its runner.

    It holds a lock as long as any of its processes lives: two of one job at a time would be seen.
    """
    steps = []
    for name, needs in graph.items():
        there = "".join(f"test -e made/{need} || exit 9; " for need in needs)
        alone = f"exec 9>>locks/{name}; flock -n 9 || echo twice {name} 0 >> witness"
        runner = "read -r pid command state runner rest < /proc/$PPID/stat"
        begun, done = f"echo begun {name} $runner >> witness", f"echo done {name} $runner >> witness"
        run = f"{there}{alone}; {runner}; {begun}; sleep {job_s}; touch made/{name}; {done}"
        steps.append({"id": name, "needs": needs, "run": run, "outputs": [f"made/{name}"]})
    return {"name": "graph", "steps": steps}


class Storm:
    """Runners, and what happens to them."""

    def __init__(self, batch: Batch, runners: int, seed: int) -> None:
        self._batch = batch
        self._chance = random.Random(seed)
        self._runners = [self._runner() for _ in range(runners)]

    def _runner(self) -> subprocess.Popen[bytes]:
        return self._batch.runner("--cpus", str(_CPUS))

    def blow(self) -> None:
        place = self._chance.randrange(len(self._runners))
        runner = self._runners[place]
        if runner.poll() is not None:
            return
        match self._chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]):
            case signal.SIGSTOP:
                runner.send_signal(signal.SIGSTOP)
                time.sleep(self._chance.random())
                runner.send_signal(signal.SIGCONT)
            case number:
                runner.send_signal(number)
                runner.wait(PATIENCE_S)
                self._runners[place] = self._runner()

    def kept(self) -> set[str]:
        """Runners that were neither killed nor stopped."""
        return {str(each.pid) for each in self._runners}

    def codes(self) -> list[int]:
        return [each.wait(PATIENCE_S) for each in self._runners]


def _survives(batch: Batch, graph: Graph, *, blows: int, seed: int, job_s: float = 0.1) -> None:
    for name in ("made", "locks"):
        (batch.folder / name).mkdir()
    batch.submit(_spec(graph, job_s))
    storm = Storm(batch, 5, seed)
    for blow in range(blows):
        enough = (blow + 1) * len(graph) // (2 * blows)
        wait_until(lambda enough=enough: len(batch.seen()) >= enough)  # type: ignore[misc]
        storm.blow()
    assert set(storm.codes()) == {0}
    seen = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for line in batch.seen():
        what, job, runner = line.split()
        seen[what][job].append(runner)
    begun = seen["begun"]
    assert begun.keys() == seen["done"].keys() == graph.keys()
    assert seen["twice"] == {}
    # A job that ran again had been under way on a runner that was lost, each time but the last.
    assert {job: runners for job, runners in begun.items() if not storm.kept().isdisjoint(runners[:-1])} == {}
    found = batch.jobs()
    assert {job["status"] for job in found.values()} == {"completed"}
    assert {job["attempt"] for job in found.values()} == {1}


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "http", "file", "s3"], indirect=True)
def test_a_graph_survives_its_runners(batch: Batch, store_url: str) -> None:
    batch.store = store_url
    _survives(batch, _layers(60), blows=5, seed=7)


def test_shapes_of_real_workflows_survive_their_runners(batch: Batch) -> None:
    sizes = {"montage": 5, "genome": 1, "seismology": 10, "epigenomics": 2, "cybershake": 2}
    graph: Graph = {}
    for shape, size in sizes.items():
        part = SHAPES[shape](size)
        graph |= {f"{shape}_{name}": [f"{shape}_{need}" for need in needs] for name, needs in part.items()}
    _survives(batch, graph, blows=6, seed=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store_url", "jobs", "seed"),
    [("sqlite", 500, 1), ("postgres", 200, 2), ("http", 200, 3), ("file", 200, 4), ("s3", 200, 5)],
    indirect=["store_url"],
)
def test_hundreds_of_jobs_survive_five_runners(batch: Batch, store_url: str, jobs: int, seed: int) -> None:
    batch.store = store_url
    _survives(batch, _layers(jobs), blows=jobs // 25, seed=seed)
