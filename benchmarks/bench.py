"""Bench: Buoy beside the raw floor of the disk and beside DBOS, interleaved, as ratios of medians.

Every measurement is a process of its own with a fresh database on a real disk. A missed target is reported, not
asserted: the exit code is 1 only when a worker crashed or ran out of time.

Usage: python benchmarks/bench.py [--quick] [--rounds R] [--only TEXT] [--dbos-wal] [--json] [--dir DIR] [--name NAME]
"""

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from scoreboard import table, verdicts
from stopwatch import Reading, Stopwatch

from plan import DBOS_PYTHON, HERE, Job, one_round

RESULTS = HERE / "results"
STDERR_LINES_SHOWN = 15


class Crash(Exception):
    """A worker gave no reading. The text has its last words."""


def main() -> int:
    args = _arguments()
    RESULTS.mkdir(exist_ok=True)
    jobs = _jobs(args)
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=args.dir))
    machine = _machine(scratch)
    _say(", ".join(f"{what} {machine[what]}" for what in ("commit", "cpus", "load", "file_system", "python")))
    if machine["file_system"].endswith("tmpfs"):
        _say("WARNING: tmpfs never syncs, so these numbers say nothing about a disk; give --dir on a real one")
    try:
        readings, crashes = _run(jobs, 1 if args.quick else args.rounds, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    outcome = {
        "machine": machine,
        "dbos_wal": args.dbos_wal,
        "board": verdicts(readings),
        "readings": readings,
        "crashes": crashes,
    }
    path = RESULTS / f"{args.name}.json"
    path.write_text(json.dumps(outcome, indent=1) + "\n")
    sys.stdout.write((json.dumps(outcome) if args.json else table(readings)) + "\n")
    for crash in crashes:
        _say(f"CRASHED, and missing from its median: {crash}")
    _say(f"written to {path}")
    return 1 if crashes else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Buoy beside the raw floor and beside DBOS.")
    parser.add_argument("--quick", action="store_true", help="one round, less of DBOS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dbos-wal", action="store_true", help="put DBOS in WAL mode, which it does not do by itself")
    parser.add_argument("--only", default="", help="only jobs with this in their name, such as `buoy.` or `latency`")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--dir", type=Path, default=RESULTS, help="where the databases go; must be a real disk")
    parser.add_argument("--name", default=f"bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}", help="of the result file")
    return parser.parse_args()


def _jobs(args: argparse.Namespace) -> list[Job]:
    jobs = [job for job in one_round(quick=args.quick, dbos_wal=args.dbos_wal) if args.only in job.name]
    if not DBOS_PYTHON.exists() and any(job.side == "dbos" for job in jobs):
        _say("DBOS is left out: run benchmarks/setup_dbos.sh first")
        return [job for job in jobs if job.side != "dbos"]
    return jobs


def _run(jobs: list[Job], rounds: int, scratch: Path) -> tuple[dict[str, list[Reading]], list[str]]:
    """The readings of every job by round, and the last words of the workers that gave none."""
    readings: dict[str, list[Reading]] = {job.name: [] for job in jobs}
    crashes: list[str] = []
    for number in range(1, rounds + 1):
        for job in jobs:
            _say(f"round {number} of {rounds}: {job.name} ...", end=" ")
            watch = Stopwatch()
            try:
                readings[job.name].append(_measure(job, scratch))
                _say(f"{watch.elapsed_s():.0f} s")
            except Crash as crash:
                crashes.append(f"{job.name}: {crash}")
                _say("CRASHED")
    return readings, crashes


def _measure(job: Job, scratch: Path) -> Reading:
    """One worker process with a folder of its own, which is gone afterwards."""
    folder = scratch / job.name
    folder.mkdir()
    try:
        done = subprocess.run(
            job.command(folder),
            cwd=folder,
            env=_compiled(),
            capture_output=True,
            text=True,
            timeout=job.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Crash(f"no reading within {job.timeout_s:.0f} s") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode != 0 or not done.stdout.strip():
        raise Crash(f"exit code {done.returncode}\n" + _tail(done.stderr))
    reading: Reading = json.loads(done.stdout.strip().splitlines()[-1])
    return reading


def _compiled() -> dict[str, str]:
    """The environment of a measurement. Modules are compiled once, as they are where a package is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-STDERR_LINES_SHOWN:])


def _machine(folder: Path) -> dict[str, str]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpus": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.2f}",
        "file_system": _file_system(folder),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def _commit() -> str:
    # `dirty`: numbers of a tree that was being edited belong to no commit.
    asked = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _file_system(folder: Path) -> str:
    """The mount that holds the folder, such as `/ on ext4`: the deepest one wins."""
    where = str(folder.resolve())
    best, kind = "", "unknown"
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "file system unknown"
    for _, point, type_, *_ in mounts:
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        # `>=`: of two mounts on the same point the later one hides the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, type_
    return f"{best} on {kind}"


def _say(text: str, end: str = "\n") -> None:
    # stderr, so that stdout holds the table or the JSON and nothing else.
    sys.stderr.write(text + end)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
