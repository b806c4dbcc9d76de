"""A server that is killed or away, with remote runners at work: it costs time, and no step runs twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections import Counter

import pytest

from tests.patience import PATIENCE_S, wait_until

from .test_serve import Place, place

__all__ = ["place"]

FLOWS = """
import os
import time
from pathlib import Path

import buoy

HERE = Path(__file__).parent


def note(text: str) -> None:
    with open(HERE / "done.txt", "a") as file:
        file.write(text + "\\n")
        file.flush()
        os.fsync(file.fileno())


@buoy.step
def work(run: int, n: int) -> int:
    note(f"{run}.{n}")
    while n == 1 and (HERE / "hold").exists():
        time.sleep(0.02)
    return n


@buoy.workflow
def flow(run: int, steps: int) -> int:
    return sum(work(run, n) for n in range(steps))
"""


class RemotePlace:
    """Runs behind a server, and workers that reach nothing else."""

    def __init__(self, place: Place) -> None:
        self.place = place
        (place.folder / "flows.py").write_text(FLOWS)
        self.workers: list[subprocess.Popen[str]] = []

    @property
    def done(self) -> list[str]:
        file = self.place.folder / "done.txt"
        return file.read_text().split() if file.exists() else []

    def start(self, runs: int, steps: int) -> None:
        for run in range(runs):
            given = ["--arg", f"run={run}", "--arg", f"steps={steps}", "--id", f"r{run}"]
            self.place.buoy("start", "flows.py:flow", *given, "--store", self.place.url)

    def worker(self) -> None:
        words = [sys.executable, "-m", "buoy", "worker", "flows.py", "--store", self.place.url]
        self.workers.append(subprocess.Popen(words, cwd=self.place.folder, env=self.place.environment, text=True))

    def results(self, runs: int) -> list[str]:
        return [self.place.buoy("result", f"r{run}", "--store", self.place.url).strip() for run in range(runs)]

    def ended(self, runs: int) -> bool:
        """Asked over the API: a command takes longer to start than the runs take to end."""
        token = self.place.token_path.read_text().strip()
        request = urllib.request.Request(
            f"{self.place.url}/api/v1/counts", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(json.loads(answer.read()).get("completed", 0)) >= runs

    def stop(self) -> None:
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            worker.wait(PATIENCE_S)


@pytest.fixture
def remote(place: Place) -> RemotePlace:
    return RemotePlace(place)


def test_a_server_that_is_away_for_a_while_costs_latency_only(remote: RemotePlace) -> None:
    """A step is under way when the server is killed, and ends while no server is there."""
    place = remote.place
    place.serve()
    remote.start(runs=2, steps=4)
    hold = place.folder / "hold"
    hold.touch()
    remote.worker()
    try:
        wait_until(lambda: {"0.1", "1.1"} <= set(remote.done), "both runs to be in their second step")
        place.end(signal.SIGKILL)
        hold.unlink()  # the steps end now, with nothing there to record them
        assert "cannot be reached" in place.buoy("ps", "--store", place.url, code=5)
        place.serve()
        wait_until(lambda: remote.ended(2), "both runs to end")
        assert remote.results(2) == ["6", "6"]
        assert [each for each, times in Counter(remote.done).items() if times > 1] == []
    finally:
        remote.stop()


def test_a_server_that_is_killed_under_load_loses_and_repeats_nothing(remote: RemotePlace) -> None:
    place = remote.place
    place.serve()
    remote.start(runs=4, steps=40)
    remote.worker()
    remote.worker()
    try:
        for kills in (1, 2):
            wait_until(lambda least=30 * kills: len(remote.done) >= least, "the workers to get on")  # type: ignore[misc]
            place.end(signal.SIGKILL)
            place.serve()
        wait_until(lambda: remote.ended(4), "all runs to end")
        assert remote.results(4) == [str(sum(range(40)))] * 4
        assert [each for each, times in Counter(remote.done).items() if times > 1] == []
        assert len(remote.done) == 4 * 40
    finally:
        remote.stop()
