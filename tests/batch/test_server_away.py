"""A server that goes away while jobs run: they end, nothing new begins, and no job runs twice."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from buoy.config import log_folder
from tests.batch.conftest import Batch
from tests.free_ports import free_ports
from tests.patience import PATIENCE_S, wait_until

_WAIT = "until test -e go; do sleep 0.02; done"
SPEC = {
    "name": "away",
    "parameters": {"k": "1:4"},
    "steps": [
        {
            "id": "first_{k}",
            "run": f"echo first_{{k}} >> witness; {_WAIT}; echo done_{{k}} >> witness",
            # A lot for each.
            "resources": {"time": "10h"},
        },
        {"id": "last", "needs": ["first_{k}"], "run": "echo last >> witness"},
    ],
}


class Server:
    """`buoy serve` as a process, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["serve", "--store", f"sqlite:///{self._folder / 'served.db'}", "--port", str(self._port)]
        with (self._folder / "server.txt").open("a") as out:
            self._process = subprocess.Popen([sys.executable, "-m", "buoy", *words], stdout=out, stderr=out)
        wait_until(self._answers, "the server to answer")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BUOY_TOKEN", raising=False)
    made = Server(tmp_path)
    made.start()
    yield made
    made.kill()


def _counts(batch: Batch) -> Counter[str]:
    return Counter(batch.seen())


def test_jobs_end_without_the_server_and_their_results_are_kept(batch: Batch, server: Server) -> None:
    batch.store = server.url
    batch.submit(SPEC)
    runners = [batch.runner("--cpus", "1"), batch.runner("--cpus", "2")]
    wait_until(lambda: len(batch.seen()) == 3)
    server.kill()
    (batch.folder / "go").touch()
    wait_until(lambda: sum(each.startswith("done_") for each in batch.seen()) == 3)
    wait_until(lambda: "the store does not answer" in batch.said(), "a word about it")
    assert len(batch.seen()) == 6
    server.start()
    assert [each.wait(PATIENCE_S) for each in runners] == [0, 0]
    assert _counts(batch) == Counter([f"{what}_{k}" for what in ("first", "done") for k in range(1, 5)] + ["last"])


def test_a_runner_that_dies_without_the_server_leaves_its_results_to_the_next(batch: Batch, server: Server) -> None:
    batch.store = server.url
    batch.submit(SPEC)

    def kept() -> list[Path]:
        return list(log_folder(server.url).glob("r1/*.end"))

    runner = batch.runner("--cpus", "2")
    wait_until(lambda: len(batch.seen()) == 2)
    server.kill()
    (batch.folder / "go").touch()
    wait_until(lambda: sum(each.startswith("done_") for each in batch.seen()) == 2)
    wait_until(lambda: len(kept()) == 2, "the ends on disk")
    assert {stat.S_IMODE(each.stat().st_mode) for each in kept()} == {0o600}
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait(PATIENCE_S)
    server.start()
    assert batch.runner("--cpus", "2").wait(PATIENCE_S) == 0
    # Whether the store has the ends from these files or from the spool of the dead runner's writes: each ran once.
    assert _counts(batch) == Counter([f"{what}_{k}" for what in ("first", "done") for k in range(1, 5)] + ["last"])
