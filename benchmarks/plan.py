"""Plan: which measurements one round takes, in which order, and how large they are.

Invariant: measurements that are compared with each other stand next to each other, so that a noisy minute of the
machine falls on both.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
DBOS_PYTHON = HERE / ".venv-dbos" / "bin" / "python"

Side = Literal["raw", "buoy", "dbos"]

WORKERS: dict[Side, tuple[str, str]] = {
    "raw": (sys.executable, "raw_floor.py"),
    "buoy": (sys.executable, "buoy_worker.py"),
    "dbos": (str(DBOS_PYTHON), "dbos_worker.py"),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement by one worker process."""

    name: str
    side: Side
    arguments: tuple[str, ...]
    timeout_s: float

    def command(self, folder: Path) -> list[str]:
        python, script = WORKERS[self.side]
        return [python, str(HERE / script), "--dir", str(folder), *self.arguments]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each measurement does. DBOS does less of the same where it needs minutes; only rates are compared."""

    raw_single: int = 5_000
    raw_batch: int = 100_000
    sequential: int = 5_000
    sequential_dbos: int = 2_000
    runs: int = 2_000
    latency: int = 1_000
    latency_dbos: int = 500
    replay: int = 20_000
    waiting: int = 10_000


FULL = Sizes()
# For a first look. DBOS gets fewer runs at once, which favours it a little.
QUICK = Sizes(sequential_dbos=1_000, latency=500, latency_dbos=200)
QUICK_RUNS_DBOS = 400
STEPS_PER_RUN = 5
ROWS_PER_COMMIT = 100


def one_round(*, quick: bool, dbos_wal: bool = False) -> list[Job]:
    """The jobs of one round, in order. `dbos_wal` gives DBOS a journal mode that it does not choose by itself."""
    sizes = QUICK if quick else FULL
    runs_dbos = QUICK_RUNS_DBOS if quick else sizes.runs
    # What takes a second or two is done several times, on both sides of what it is compared with: a disk that is slow
    # for a moment must not decide.
    single = [_job("raw", "single", sizes.raw_single), _job("buoy", "sequential", sizes.sequential)]
    concurrent = _job("buoy", "concurrent", sizes.runs, STEPS_PER_RUN)
    latency = _job("buoy", "latency", sizes.latency)
    jobs = [
        *single * 5,
        _job("dbos", "sequential", sizes.sequential_dbos),
        _job("raw", "batch", sizes.raw_batch, ROWS_PER_COMMIT),
        concurrent,
        _job("dbos", "concurrent", runs_dbos, STEPS_PER_RUN, timeout_s=300),
        concurrent,
        latency,
        _job("dbos", "latency", sizes.latency_dbos),
        latency,
        _job("buoy", "replay", sizes.replay),
        _job("buoy", "waiting", sizes.waiting, timeout_s=180),
        _job("buoy", "waiting", sizes.waiting, "--evict", timeout_s=180),
    ]
    return [_in_wal(job) if dbos_wal and job.side == "dbos" else job for job in jobs]


def _job(side: Side, what: str, *numbers: int | str, timeout_s: float = 120) -> Job:
    suffix = "-evicted" if "--evict" in numbers else ""
    return Job(f"{side}.{what}{suffix}", side, (what, *map(str, numbers)), timeout_s)


def _in_wal(job: Job) -> Job:
    return replace(job, arguments=("--wal", *job.arguments))
