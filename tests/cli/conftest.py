"""What the tests of the command line share: the program in this process, and real processes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from buoy.cli.main import main
from tests.patience import PATIENCE_S, wait_until

FLOWS = Path(__file__).with_name("flows.py")
ASKING = Path(__file__).with_name("asking_flows.py")


class Buoy:
    """The program, run in this process on a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / 'buoy.db'}"
        self.witness = folder / "witness.txt"
        self.witness.touch()

    def __call__(self, *words: str, code: int = 0, typed: str | None = None) -> Result:
        found = CliRunner().invoke(main, [*words, "--store", self.store], input=typed)
        assert found.exit_code == code, f"{words}: {found.exit_code}\n{found.output}\n{found.exception!r}"
        assert "Traceback" not in found.stderr
        return found

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).stdout)

    def drive(self) -> None:
        """A worker does what is to do now."""
        self("worker", str(FLOWS), str(ASKING), "--until-idle")

    def seen(self) -> list[str]:
        return self.witness.read_text().splitlines()

    @contextmanager
    def held(self, number: int) -> Iterator[None]:
        """Inside of this block the part of that number of the workflow `parts` does not end."""
        hold = Path(f"{self.witness}.hold-{number}")
        hold.touch()
        yield
        hold.unlink()


class Process:
    """A real process of the program, with its output in files."""

    def __init__(self, words: list[str], folder: Path, number: int, program: tuple[str, ...] = ("-m", "buoy")) -> None:
        self.out = folder / f"out-{number}.txt"
        self.err = folder / f"err-{number}.txt"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.popen = subprocess.Popen(
                [sys.executable, *program, *words], stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=folder
            )

    def send(self, number: signal.Signals) -> None:
        os.kill(self.popen.pid, number)

    def wait(self) -> int:
        return self.popen.wait(PATIENCE_S)

    def output(self) -> str:
        return self.out.read_text() + self.err.read_text()


Spawn = Callable[..., Process]


@pytest.fixture
def buoy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Buoy:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUOY_STORE", raising=False)
    return Buoy(tmp_path)


@pytest.fixture
def spawn(buoy: Buoy) -> Iterator[Spawn]:
    made: list[Process] = []

    def start(*words: str, program: tuple[str, ...] = ("-m", "buoy")) -> Process:
        made.append(Process([*words, "--store", buoy.store], buoy.folder, len(made), program))
        return made[-1]

    yield start
    for each in made:
        if each.popen.poll() is None:
            each.popen.kill()
            each.popen.wait()


def until(what: Callable[[], object], process: Process | None = None) -> None:
    """Waits until the condition holds. Fails if the process that should make it so has ended."""

    def holds() -> object:
        found = what()
        assert found or process is None or process.popen.poll() is None, f"the process ended:\n{process.output()}"
        return found

    wait_until(holds)
