"""Scenarios on a real Slurm: a run that `buoy watch --recover` looks after, and how each of them must end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from tests.patience import PATIENCE_S, wait_until
from tests.slurm.conftest import SlurmBatch

# A job that notes its start and its end, and ends when the test opens the gate.
GATED = "echo begun {k} >> witness; while [ ! -e gate ]; do sleep 0.1; done; echo done {k} >> witness"


def sweep(jobs: int = 2, command: str = GATED, **step: Any) -> dict[str, Any]:
    """So many jobs that do not need each other."""
    return {"name": "sweep", "parameters": {"k": f"1:{jobs}"}, "steps": [{"id": "job_{k}", "run": command, **step}]}


class Scenario:
    """One run, and the process that looks after it."""

    def __init__(self, slurm: SlurmBatch) -> None:
        self.slurm = slurm
        self._watching: subprocess.Popen[bytes] | None = None

    def submit(self, spec: dict[str, Any], *words: str) -> None:
        self.slurm.write(spec)
        self.slurm("submit", "spec.yaml", "--id", "r1", "--slurm", *words)

    def watch(self, *words: str) -> None:
        call = ["watch", "r1", "--recover", "--poll", "1s", "--store", self.slurm.store, *words]
        with (self.slurm.folder / "watch.txt").open("a") as out:
            self._watching = subprocess.Popen(
                [sys.executable, "-m", "buoy", *call], env=dict(os.environ), stdout=out, stderr=out
            )

    def kill_watch(self) -> None:
        if self._watching is not None:
            self._watching.kill()
            self._watching.wait(PATIENCE_S)
            self._watching = None

    def begun(self) -> list[str]:
        return [each.removeprefix("begun ") for each in self.slurm.seen() if each.startswith("begun ")]

    def until_begun(self, count: int) -> None:
        self.until(lambda: len(self.begun()) >= count, f"{count} starts of jobs")

    def until_active(self) -> None:
        """The watch has seen that its allocation runs."""
        self.until(lambda: "active" in [each["status"] for each in self.slurm.allocations()], "an active allocation")

    def until(self, holds: Callable[[], object], what: str) -> None:
        try:
            wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from error

    def open_gate(self) -> None:
        (self.slurm.folder / "gate").touch()

    def completed(self) -> Counter[str]:
        """The run completes under the watch, and every job ran to its end. How often each began."""
        assert self._watching is not None
        assert self._watching.wait(PATIENCE_S) == 0, self.told()
        self._watching = None
        found = self.slurm.jobs()
        assert {job["status"] for job in found.values()} == {"completed"}, self.told()
        begun, done = Counter(self.begun()), Counter(each for each in self.slurm.seen() if each.startswith("done "))
        assert len(done) == len(found) == len(begun), f"every job ran to its end: {done}\n{self.told()}"
        return begun

    def ended(self, *, twice: Collection[str] = ()) -> None:
        """The run completes, and nothing is left of it. `twice`: jobs that were under way when lost."""
        begun = self.completed()
        assert {job: count for job, count in begun.items() if count > 1} == dict.fromkeys(twice, 2), self.told()
        self.clean()

    def clean(self) -> None:
        """No allocation is unknown, no orphan and no job of Slurm remains, and the store is healthy."""
        self.until(lambda: not self.queued(), "the end of its last allocation")
        synced = self.slurm.json("sync-status", "r1")
        assert (synced["stuck"], self.slurm.json("sync-status", "r1")["orphans"]) == (False, []), synced
        left = [each for each in self.slurm.allocations() if each["status"] != "complete"]
        assert left == [], f"{left}\n{self.told()}"
        assert self.slurm.json("doctor")["healthy"]

    def queued(self) -> list[str]:
        names = ",".join(each["name"] for each in self.slurm.allocations())
        return self.slurm.cluster.run("squeue", "-h", "-o", "%i %T", f"--name={names}").stdout.splitlines()

    def codes(self) -> list[str]:
        """What the watch found."""
        lines = (self.slurm.folder / "watch.txt").read_text().splitlines()
        return [word for line in lines for word in line.split()[1:2] if word[:1] == "J" and word[1:].isdigit()]

    def told(self) -> str:
        told = self.slurm.folder / "watch.txt"
        return (told.read_text() if told.exists() else "") + self.slurm.outputs() + "\n".join(self.slurm.seen())

    def end(self) -> None:
        if self._watching is not None:
            self._watching.send_signal(signal.SIGKILL)
            self._watching.wait(PATIENCE_S)


@pytest.fixture
def scenario(slurm: SlurmBatch) -> Iterator[Scenario]:
    made = Scenario(slurm)
    yield made
    made.end()
