"""How long the command takes to start, against the time that its libraries take to load.

Run it with `python benchmarks/startup.py`. Each round measures every case once, so that a busy machine slows down all.
Printed are medians of processor time, and their ratio to the floor: a process that imports click, rich's console,
msgspec and sqlite3.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FLOOR = "the libraries alone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="buoy-startup-") as folder:
        store = f"sqlite:///{folder}/buoy.db"
        prepare(store)
        cases = {
            FLOOR: ["-c", "import click, rich.console, msgspec, sqlite3"],
            "asyncio alone": ["-c", "import asyncio"],
            "buoy --version": ["-m", "buoy", "--version"],
            "buoy ps": ["-m", "buoy", "ps", "--store", store],
            "import buoy, all of it": ["-c", "import buoy; buoy.workflow"],
        }
        spent: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, words in cases.items():
                spent[name].append(processor_s(words))
    floor = statistics.median(spent[FLOOR])
    for name, found in spent.items():
        median = statistics.median(found)
        print(f"{name:<24} {median * 1000:7.0f} ms  {median / floor:5.2f} x")


def prepare(store: str) -> None:
    """A store with a run in it."""
    flows = Path(__file__).resolve().parent.parent / "examples" / "flows.py"
    given = ["--input", '{"item": "lamp", "witness": ""}']
    command = [sys.executable, "-m", "buoy", "start", f"{flows}:order", *given, "--store", store]
    subprocess.run(command, check=True, capture_output=True)


def processor_s(words: list[str]) -> float:
    """Processor time, not wall time: other processes do not count."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{words}: ended with status {status}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
