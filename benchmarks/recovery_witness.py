"""Witness: what the steps of a killed and a recovering process leave behind, outside of every store.

Invariant: standard library only, because this also runs inside the DBOS environment. One line for each execution of a
step's body, `life step run`, written at once.
"""

import os
from collections import Counter
from pathlib import Path

STEPS = 5
DONE = 3


class Witness:
    """A file that several lives of a process write to."""

    def __init__(self, folder: Path, life: int) -> None:
        self._life = life
        self._file = os.open(folder / "witness.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def ran(self, step: int, run: int) -> None:
        os.write(self._file, b"%d %d %d\n" % (self._life, step, run))


def executions(folder: Path) -> Counter[tuple[int, int]]:
    """How often each step ran, by life and step."""
    path = folder / "witness.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter((int(life), int(step)) for life, step, _ in (line.split() for line in lines))


def distinct(folder: Path, life: int, step: int) -> int:
    """In how many runs a life executed that step."""
    path = folder / "witness.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return len({run for each, at, run in (line.split() for line in lines) if (int(each), int(at)) == (life, step)})
