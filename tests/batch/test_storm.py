"""Runners that are killed, stopped and halted at random: every job completes, and few run twice.

The long form: python -m pytest -m slow tests/batch/test_storm.py
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from typing import Any

import pytest

from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until

_CPUS = 2


def _layers(jobs: int) -> dict[str, Any]:
    """Four layers; each job needs two of the layer before."""
    width = jobs // 4
    steps: list[dict[str, Any]] = []
    for number in range(jobs):
        layer, place = divmod(number, width)
        needs = [f"j{(layer - 1) * width + (place + each) % width}" for each in (0, 1)] if layer else []
        run = f"echo begun {number} >> witness; sleep 0.1; echo done {number} >> witness"
        steps.append({"id": f"j{number}", "needs": needs, "run": run})
    return {"name": "layers", "steps": steps}


class Storm:
    """Runners, and what happens to them."""

    def __init__(self, batch: Batch, runners: int, seed: int) -> None:
        self._batch = batch
        self._chance = random.Random(seed)
        self._runners = [batch.runner("--cpus", str(_CPUS)) for _ in range(runners)]
        self.lost = 0

    def blow(self) -> None:
        place = self._chance.randrange(len(self._runners))
        runner = self._runners[place]
        if runner.poll() is not None:
            return
        match self._chance.choice(["kill", "stop", "halt"]):
            case "kill":
                runner.kill()
                self._end(runner)
                self._runners[place] = self._batch.runner("--cpus", str(_CPUS))
            case "stop":
                runner.send_signal(signal.SIGTERM)
                self._end(runner)
                self._runners[place] = self._batch.runner("--cpus", str(_CPUS))
            case _:
                runner.send_signal(signal.SIGSTOP)
                time.sleep(self._chance.random())
                runner.send_signal(signal.SIGCONT)

    def _end(self, runner: subprocess.Popen[bytes]) -> None:
        runner.wait(PATIENCE_S)
        self.lost += _CPUS

    def codes(self) -> list[int]:
        return [each.wait(PATIENCE_S) for each in self._runners]


def _survives(batch: Batch, *, jobs: int, runners: int, blows: int, seed: int) -> None:
    batch.submit(_layers(jobs))
    storm = Storm(batch, runners, seed)
    for blow in range(blows):
        enough = (blow + 1) * jobs // (2 * blows)
        wait_until(lambda enough=enough: len(batch.seen()) >= enough)  # type: ignore[misc]
        storm.blow()
    assert set(storm.codes()) == {0}
    seen = Counter(batch.seen())
    for number in range(jobs):
        assert seen[f"begun {number}"] >= seen[f"done {number}"] >= 1
    assert sum(seen[f"begun {number}"] - 1 for number in range(jobs)) <= storm.lost
    found = batch.jobs()
    assert {job["status"] for job in found.values()} == {"completed"}
    assert {job["attempt"] for job in found.values()} == {1}


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "http", "file"], indirect=True)
def test_a_graph_survives_its_runners(batch: Batch, store_url: str) -> None:
    batch.store = store_url
    _survives(batch, jobs=60, runners=5, blows=5, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store_url", "jobs", "seed"),
    [("sqlite", 500, 1), ("postgres", 200, 2), ("http", 200, 3), ("file", 200, 4)],
    indirect=["store_url"],
)
def test_hundreds_of_jobs_survive_five_runners(batch: Batch, store_url: str, jobs: int, seed: int) -> None:
    batch.store = store_url
    _survives(batch, jobs=jobs, runners=5, blows=jobs // 25, seed=seed)
