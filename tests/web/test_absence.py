"""A server that is killed or away, with remote runners at work: it costs time, and no step runs twice."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from buoy.core.log import events as e
from buoy.host.spool import read_spool
from tests.patience import PATIENCE_S, wait_until
from tests.postgres_server import fresh_url

from .test_serve import Place, place

__all__ = ["place"]

FLOWS = """
import asyncio
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


@buoy.step
async def part(n: int) -> int:
    note(f"part.{n}")
    while (HERE / "hold").exists():
        await asyncio.sleep(0.02)
    return n


@buoy.workflow
async def wide(parts: int) -> int:
    return sum(await asyncio.gather(*(part(n) for n in range(parts))))
"""
# How long the server is away. `BUOY_AWAY_S=180 pytest tests/web/test_absence.py` is the long form.
AWAY_S = float(os.environ.get("BUOY_AWAY_S", "0"))


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

    def start_over_api(self, run: int, steps: int) -> bool:
        """False: no worker has told its workflows yet."""
        order = {"workflow": "flow", "run_id": f"r{run}", "input": {"run": run, "steps": steps}}
        try:
            return bool(self._ask("/runs", json.dumps(order).encode())["run_id"])
        except urllib.error.HTTPError as error:
            assert error.code == 404, error.read()
            return False

    def worker(self, *more: str) -> None:
        words = [sys.executable, "-m", "buoy", "worker", "flows.py", "--store", self.place.url, *more]
        self.workers.append(subprocess.Popen(words, cwd=self.place.folder, env=self.place.environment, text=True))

    def unsent(self) -> list[str]:
        """The outcomes of steps that a runner keeps for the server."""
        files = list((self.place.folder / "state/buoy/spool").glob("*/*.spool"))
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
        bodies = [event.body for file in files for write in read_spool(file.read_bytes()) for event in write.events]
        return [body.leaf for body in bodies if isinstance(body, e.StepCompleted)]

    def away(self) -> None:
        """The server is away for as long as this test was asked to wait."""
        time.sleep(AWAY_S)

    def results(self, runs: int) -> list[str]:
        return [self.place.buoy("result", f"r{run}", "--store", self.place.url).strip() for run in range(runs)]

    def ended(self, runs: int) -> bool:
        """Asked over the API: a command takes longer to start than the runs take to end."""
        return int(self._ask("/counts").get("completed", 0)) >= runs

    def result(self, run: int) -> Any:
        return self._ask(f"/runs/r{run}")["result"]

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.place.token_path.read_text().strip()}"}
        request = urllib.request.Request(f"{self.place.url}/api/v1{path}", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())

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
        remote.away()
        place.serve()
        wait_until(lambda: remote.ended(2), "both runs to end")
        assert remote.results(2) == ["6", "6"]
        assert [each for each, times in Counter(remote.done).items() if times > 1] == []
    finally:
        remote.stop()


def test_steps_that_ended_during_an_absence_have_their_outcome_though_their_runner_is_killed_too(
    remote: RemotePlace,
) -> None:
    """Two runs in sequential steps, and one with three steps at once, whose outcomes are two writes."""
    place = remote.place
    place.serve()
    remote.start(runs=2, steps=3)
    place.buoy("start", "flows.py:wide", "--arg", "parts=3", "--id", "r2", "--store", place.url)
    hold = place.folder / "hold"
    hold.touch()
    remote.worker()
    begun = {"0.1", "1.1", "part.0", "part.1", "part.2"}
    try:
        wait_until(lambda: begun <= set(remote.done), "all steps to be under way")
        place.end(signal.SIGKILL)
        hold.unlink()
        wait_until(lambda: len(remote.unsent()) == len(begun), "all outcomes to be on the disk of the runner")
        remote.workers[0].kill()
        remote.away()
        place.serve()
        remote.worker()
        wait_until(lambda: remote.ended(3), "all runs to end")
        assert remote.results(3) == ["3", "3", "3"]
        assert [each for each, times in Counter(remote.done).items() if times > 1] == []
        wait_until(lambda: not remote.unsent(), "the new runner to have sent what was left")
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


def test_of_two_servers_on_one_database_one_is_killed_under_load_and_nothing_runs_twice(tmp_path: Path) -> None:
    """Each server has a worker of its own; the server that lives answers while the other is away."""
    store = fresh_url()
    one, two = RemotePlace(Place(tmp_path, store)), RemotePlace(Place(tmp_path, store))
    try:
        for each in (one, two):
            each.place.serve()
            each.worker("--concurrency", "2")  # so that neither takes all
        for run in range(4):
            wait_until(lambda number=run: one.start_over_api(number, 30), "a worker to be there")  # type: ignore[misc]
        wait_until(lambda: len({each.split(".")[0] for each in one.done}) == 4, "all runs to be driven, by both")
        one.place.end(signal.SIGKILL)
        assert not two.ended(5), "the other server answers"
        one.place.serve()
        wait_until(lambda: two.ended(4), "all runs to end")
        assert [two.result(run) for run in range(4)] == [sum(range(30))] * 4
        assert [each for each, times in Counter(one.done).items() if times > 1] == []
        assert len(one.done) == 4 * 30
    finally:
        for each in (one, two):
            each.stop()
            if each.place.server is not None:
                each.place.end(signal.SIGKILL)
