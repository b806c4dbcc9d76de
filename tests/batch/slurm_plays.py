"""A batch run with a played Slurm: its answers are texts that the test writes, its calls are counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S

_SCRIPT = Path(__file__).with_name("played_slurm.py")
_COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")


class Played(Batch):
    """One store, and a Slurm whose jobs the test moves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.slurm = folder / "slurm"
        self.slurm.mkdir()
        for name in _COMMANDS:
            path = self.slurm / name
            path.write_text(f"#!{sys.executable} -IS\n" + _SCRIPT.read_text().partition("\n")[2])
            path.chmod(0o755)

    @property
    def queue(self) -> list[dict[str, Any]]:
        path = self.slurm / "jobs.json"
        return list(json.loads(path.read_text())) if path.exists() else []

    def set(self, number: int, **fields: Any) -> None:
        """Changes one job of the queue, by its place in it."""
        found = self.queue
        found[number] |= fields
        (self.slurm / "jobs.json").write_text(json.dumps(found))

    def calls(self) -> list[str]:
        """The commands of Slurm that were called since the last question."""
        path = self.slurm / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line.split()[0] for line in found]

    def actions(self, run_id: str = "r1") -> dict[str, dict[str, Any]]:
        return {each["action"]: each for each in self.json("slurm", "actions", run_id)["actions"]}

    def allocations(self, run_id: str = "r1") -> list[dict[str, Any]]:
        return list(self.json("slurm", "allocations", run_id)["allocations"])

    def watch(self, *words: str, code: int = 4) -> str:
        return self("watch", "r1", "--auto-schedule", "--once", *words, code=code)

    def runner_in(self, number: int, *words: str) -> subprocess.Popen[bytes]:
        """A runner in that job of the queue, which runs now."""
        job = self.queue[number]
        self.set(number, state="RUNNING")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BUOY_ALLOCATION", job["name"])
            patch.setenv("SLURM_JOB_ID", job["id"])
            patch.setenv("SLURM_CLUSTER_NAME", "pond")
            patch.setenv("SLURM_RESTART_COUNT", str(job["restart"]))
            return self.runner("--cpus", "4", *words)

    def lose(self, number: int, state: str, accounts: str = "") -> None:
        """The job of the queue ends, with everything in it. `accounts`: time and memory, as sacct tells them."""
        for each in self.runners:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait(PATIENCE_S)
        self.set(number, state=state)
        job = self.queue[number]
        if accounts:
            elapsed, peak = accounts.split()
            rows = [f"{job['id']}|{job['name']}|{state}|0:0|n1|pond|{elapsed}|",
                    f"{job['id']}.batch|batch|{state}|0:9|n1|pond|{elapsed}|{peak}"]  # fmt: skip
            (self.slurm / "sacct.txt").write_text("\n".join(rows))

    def run_all(self) -> None:
        """Every job runs here, to the end of the run."""
        assert self.runner("--cpus", "8").wait(60) == 0, self.said()


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.chdir(tmp_path)
    made = Played(tmp_path)
    monkeypatch.setenv("PLAYED_SLURM", str(made.slurm))
    monkeypatch.setenv("PATH", str(made.slurm), prepend=":")
    yield made
    made.end()


__all__ = ["Played", "played"]
