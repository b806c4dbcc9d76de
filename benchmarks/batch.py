"""Batch runs: the rate of no-op jobs by two runners, and what a graph of many jobs costs its owner.

    python benchmarks/batch.py noop --jobs 20000
    python benchmarks/batch.py size --jobs 100000

On a busy machine the rates mean little; the processor time per job is printed beside them. Ratios of processor time
compare all processes of Buoy, guards and shells included, with a plain loop that starts and reaps /bin/true.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

_EDGES_PER_JOB = 10
_LAYERS = 100
_PLAIN = 1000


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _plain() -> tuple[float, float]:
    """Starts and reaps /bin/true in two loops: how many per second, and processor seconds for each."""
    loop = (
        "import os, sys\n"
        f"for _ in range({_PLAIN}): os.waitpid(os.posix_spawn('/bin/true', ['/bin/true'], os.environ), 0)"
    )
    cpu, began = _cpu_s(), time.perf_counter()
    loops = [subprocess.Popen([sys.executable, "-I", "-S", "-c", loop]) for _ in range(2)]
    for each in loops:
        each.wait()
    return 2 * _PLAIN / (time.perf_counter() - began), (_cpu_s() - cpu) / (2 * _PLAIN)


def _buoy(folder: Path, *words: str) -> subprocess.Popen[str]:
    store = f"sqlite:///{folder / 'buoy.db'}"
    command = [sys.executable, "-m", "buoy", *words, "--store", store]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _ended(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args!r} ended with {process.returncode}:\n{out}")
    return out


def noop(jobs: int, cpus: int) -> dict[str, float]:
    """Two runners on this machine."""
    plain_rate, plain_cpu_s = _plain()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spec.yaml").write_text(
            f'name: noop\nparameters: {{k: "1:{jobs}"}}\nsteps: [{{id: "job_{{k}}", run: "true"}}]\n'
        )
        _ended(_buoy(folder, "submit", "spec.yaml", "--id", "r1"))
        cpu, began = _cpu_s(), time.perf_counter()
        runners = [_buoy(folder, "runner", "--run", "r1", "--cpus", str(cpus)) for _ in range(2)]
        for each in runners:
            _ended(each)
        rate, cpu_s = jobs / (time.perf_counter() - began), (_cpu_s() - cpu) / jobs
        more = _log(folder, jobs)
    after_rate, after_cpu_s = _plain()
    plain_rate, plain_cpu_s = (plain_rate + after_rate) / 2, (plain_cpu_s + after_cpu_s) / 2
    return {
        "jobs": jobs,
        "plain_per_s": round(plain_rate, 1),
        "jobs_per_s": round(rate, 1),
        "of_plain": round(rate / plain_rate, 3),
        "plain_cpu_ms": round(1000 * plain_cpu_s, 3),
        "job_cpu_ms": round(1000 * cpu_s, 3),
        "of_plain_by_cpu": round(plain_cpu_s / cpu_s, 3),
        **more,
    }


def _log(folder: Path, jobs: int) -> dict[str, float]:
    """What the store has: bytes of all logs, messages and lots per job, and the size of the run's document."""
    with sqlite3.connect(folder / "buoy.db") as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        found: dict[str, float] = {"store_bytes_per_job": (folder / "buoy.db").stat().st_size / jobs}
        if "events" in tables:
            found["events_per_job"] = db.execute("SELECT count(*) FROM events").fetchone()[0] / jobs
        if "runs" in tables:
            found["runs"] = db.execute("SELECT count(*) FROM runs").fetchone()[0]
    return {name: round(value, 3) for name, value in found.items()}


def size(jobs: int) -> dict[str, float]:
    """A graph with ten edges per job: submit it, drive it, kill its owner, and see it taken over."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = graph(jobs)
        edges = sum(len(each.needs) for each in steps)
        spec = {"name": "graph", "steps": [each._asdict() for each in steps]}
        (folder / "spec.json").write_text(json.dumps(spec))
        cpu, began = _cpu_s(), time.perf_counter()
        _ended(_buoy(folder, "submit", "spec.json", "--id", "r1"))
        submit_s, submit_cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        first, began = _buoy(folder, "runner", "--run", "r1", "--cpus", "2"), time.perf_counter()
        offered_s = _until_said(first, "lot-1")
        memory_mb = _peak_mb(first.pid)
        first.send_signal(signal.SIGKILL)
        first.wait()
        second = _buoy(folder, "runner", "--run", "r1", "--cpus", "2")
        took_s = _until_said(second, "took r1 ")
        second_mb = _peak_mb(second.pid)
        second.send_signal(signal.SIGTERM)
        second.communicate()
    return {
        "jobs": jobs,
        "edges": edges,
        "submit_s": round(submit_s, 2),
        "submit_cpu_s": round(submit_cpu_s, 2),
        "first_lot_taken_s": round(offered_s, 2),
        "owner_memory_mb": round(memory_mb, 1),
        "takeover_s": round(took_s, 2),
        "second_owner_memory_mb": round(second_mb, 1),
    }


class _Step(NamedTuple):
    id: str
    run: str
    needs: list[str]


def graph(jobs: int, width: int | None = None) -> list[_Step]:
    """Layers of jobs, each with ten needs in the layer before; without a width a hundred layers."""
    width = width or max(1, jobs // _LAYERS)
    steps = []
    for number in range(jobs):
        below = (number // width - 1) * width
        ways = range(min(_EDGES_PER_JOB, width))
        needs = [] if below < 0 else list(dict.fromkeys(f"j{below + (number * 7 + 13 * way) % width}" for way in ways))
        steps.append(_Step(f"j{number}", "true", needs))
    return steps


def _until_said(process: subprocess.Popen[str], text: str) -> float:
    began = time.perf_counter()
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return time.perf_counter() - began
    raise SystemExit(f"the runner ended without a word of {text!r}")


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["noop", "size"])
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--cpus", type=int, default=max(2, (os.cpu_count() or 2)))
    given = parser.parse_args()
    found = noop(given.jobs or 20_000, given.cpus) if given.what == "noop" else size(given.jobs or 100_000)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
