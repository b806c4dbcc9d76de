"""Where the crash tests start, kill and stop worker processes, and read what the witness saw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from buoy.config import HOST_VARIABLE
from buoy.core.log import events as e
from tests.patience import PATIENCE_S, wait_until
from tests.postgres_server import fresh_url

from .flows import WITNESS

ROOT = Path(__file__).resolve().parent.parent.parent


class Seen(NamedTuple):
    """One line of the witness."""

    at: float
    pid: int
    run: str
    leaf: str
    attempt: int
    key: str
    what: str


class CrashHarness:
    """The processes of one test. All of them end with it."""

    def __init__(self, folder: Path, *, told: bool = False) -> None:
        self.folder = folder
        self._told = ("--told",) if told else ()
        self.witness = folder / "witness"
        self.url = self.url_of("sqlite")
        self.killed_at: dict[int, float] = {}
        self._workers: dict[int, subprocess.Popen[str] | None] = {}
        self._fork_server: subprocess.Popen[str] | None = None

    def url_of(self, kind: str) -> str:
        if kind == "postgres":
            return fresh_url()
        return f"sqlite:///{self.folder}/runs.db" if kind == "sqlite" else f"file://{self.folder}/store"

    # ---- processes

    def _popen(self, *args: str, host: str | None = None, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", *args, *self._told],
            cwd=ROOT,
            env={
                **os.environ,
                WITNESS: str(self.witness),
                **({} if host is None else {HOST_VARIABLE: host}),
                **variables,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def worker(self, grace_s: float = 5.0, host: str | None = None, **variables: str) -> subprocess.Popen[str]:
        """A worker that is ready for work; with `host` as on a machine of that name."""
        apart = () if host is None else ("--apart",)
        process = self._popen("tests.crash.worker", self.url, str(grace_s), *apart, host=host, **variables)
        self._workers[process.pid] = process
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        return process

    def fork_worker(self) -> int:
        """The PID of a worker that begins now."""
        if self._fork_server is None:
            self._fork_server = self._popen("tests.crash.worker", "--fork-server", self.url)
        assert self._fork_server.stdin is not None
        assert self._fork_server.stdout is not None
        self._fork_server.stdin.write("go\n")
        self._fork_server.stdin.flush()
        pid = int(self._fork_server.stdout.readline())
        self._workers[pid] = None
        return pid

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        # Before the signal: another process may know of the death before this one does.
        self.killed_at[pid] = time.time()
        os.kill(pid, number)
        process = self._workers.pop(pid)
        if process is not None:
            process.wait(PATIENCE_S)
        else:
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"{pid} to be gone")

    def close(self) -> None:
        for pid in list(self._workers):
            try:
                self.kill(pid)
            except ProcessLookupError:
                self._workers.pop(pid, None)
        if self._fork_server is not None:
            assert self._fork_server.stdin is not None
            self._fork_server.stdin.close()
            self._fork_server.wait(PATIENCE_S)

    # ---- the witness

    def latest(self) -> list[int]:
        """Who has spoken last, as PIDs."""
        return [int(line.split()[1]) for line in self._tail(2048)]

    def died_at_work(self, pid: int) -> bool:
        """Whether a process that is gone had begun a body and not ended it."""
        said = [read(line.decode()) for line in self._tail(1 << 17) if line.split()[1] == str(pid).encode()]
        last = {(each.run, each.leaf): each.what for each in said}
        return "start" in last.values()

    def _tail(self, size: int) -> list[bytes]:
        """The last lines of the witness, without reading a long story from its beginning."""
        if not self.witness.exists():
            return []
        with self.witness.open("rb") as file:
            start = max(0, self.witness.stat().st_size - size)
            file.seek(start)
            return whole_lines(file.read())[1 if start else 0 :]

    def seen(self) -> list[Seen]:
        if not self.witness.exists():
            return []
        return [read(line.decode()) for line in whole_lines(self.witness.read_bytes())]


def whole_lines(said: bytes) -> list[bytes]:
    """Without the last one if it is just being written."""
    return said[: said.rfind(b"\n") + 1].splitlines()


def read(line: str) -> Seen:
    at, pid, run, leaf, attempt, key, what = line.split(" ")
    return Seen(float(at), int(pid), run, leaf, int(attempt), key, what)


def check_executions(seen: list[Seen], log: list[e.Event], run: str, killed_at: dict[int, float]) -> int:
    """What law 11 says about one run. The number of bodies that ran once more because of a kill.

    The log is dated by the clock of the witness.
    """
    completed = {event.body.leaf: event.at for event in log if isinstance(event.body, e.StepCompleted)}
    claims = sum(isinstance(event.body, e.Claimed) for event in log)
    starts: dict[tuple[str, int], list[Seen]] = defaultdict(list)
    for each in seen:
        if each.run == run and each.what == "start":
            starts[each.leaf, each.attempt].append(each)
    extra = 0
    for (leaf, attempt), times in starts.items():
        where = f"{run} {leaf} attempt {attempt}"
        assert {each.key for each in times} == {f"{run}/{leaf}/0"}, where
        if leaf in completed:
            late = [each for each in times if each.at > completed[leaf]]
            assert not late, f"{where} was executed again after its completion was recorded: {late}"
        assert len(times) <= claims, f"{where} ran {len(times)} times under {claims} claims"
        for one, next_one in pairwise(times):
            died = killed_at.get(one.pid)
            assert died is not None, f"{where} ran again although {one.pid} was never killed"
            assert died <= next_one.at, f"{where} ran again before {one.pid} was killed"
        extra += len(times) - 1
    started = {event.body.leaf for event in log if isinstance(event.body, e.StepStarted)}
    assert {leaf for leaf, _ in starts} <= started
    return extra
