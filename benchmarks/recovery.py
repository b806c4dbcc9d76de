"""Recovery: how long runs that were killed take to run again, and what a sweep costs.

    python benchmarks/recovery.py takeover [--runs 1000] [--rounds 3]   beside DBOS, in one run
    python benchmarks/recovery.py sweep [--largest 1000000]             statements and time, by what has finished
    python benchmarks/recovery.py sweepers [--runs 1000] [--crowd 8]    many processes at once, each orphan once

Takeover: every run has 3 of its 5 steps done and is in the 4th when its process gets SIGKILL. The clock runs from the
start of a new process until the 4th step of every run has begun again. No completed step may be executed again: what
was, is counted. Sweep: 100 orphans among finished runs. Sweepers: `buoy sweeper --once` in processes of their own.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from recovery_store import sweep_costs
from recovery_sweepers import many_sweepers
from recovery_witness import DONE, distinct, executions

from plan import DBOS_PYTHON, HERE

SIDES = {"buoy": (sys.executable, "recovery_buoy.py"), "dbos": (str(DBOS_PYTHON), "recovery_dbos.py")}
PATIENCE_S = 300.0


def main() -> int:
    args = _arguments()
    match args.what:
        case "takeover":
            found = takeover(args)
        case "sweep":
            found = asyncio.run(sweep_costs(args.largest, args.dir))
        case _:
            found = many_sweepers(args.runs, args.crowd, args.dir)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How long recovery takes.")
    parser.add_argument("what", choices=["takeover", "sweep", "sweepers"])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--crowd", type=int, default=8, help="sweepers at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--dir", type=Path, default=HERE / "results", help="where the databases go; a real disk")
    args = parser.parse_args()
    args.dir.mkdir(exist_ok=True)
    return args


def takeover(args: argparse.Namespace) -> dict[str, object]:
    sides = [side for side in SIDES if Path(SIDES[side][0]).exists()]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    repeated: dict[str, int] = dict.fromkeys(sides, 0)
    for number in range(args.rounds):
        for side in sides:
            folder = Path(tempfile.mkdtemp(prefix="recovery-", dir=args.dir))
            try:
                took_s, again = _killed_and_back(side, folder, args.runs)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            seconds[side].append(round(took_s, 3))
            repeated[side] += again
            sys.stderr.write(f"round {number + 1}: {side} {took_s:.2f} s, completed steps executed again: {again}\n")
    medians = {side: median(each) for side, each in seconds.items()}
    quicker = round(medians["dbos"] / medians["buoy"], 1) if "dbos" in medians else None
    return {"runs": args.runs, "seconds": seconds, "medians": medians, "repeated": repeated, "quicker": quicker}


def _killed_and_back(side: str, folder: Path, runs: int) -> tuple[float, int]:
    first = _life(side, folder, 1, runs)
    _until(lambda: distinct(folder, 1, DONE) == runs, first)
    # The last completed step of the last run is recorded a moment after its body ended.
    time.sleep(1.0)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    began = time.monotonic()
    second = _life(side, folder, 2, runs)
    _until(lambda: distinct(folder, 2, DONE) == runs, second)
    took_s = time.monotonic() - began
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    ran = executions(folder)
    return took_s, sum(ran[2, step] for step in range(DONE))


def _life(side: str, folder: Path, life: int, runs: int) -> "subprocess.Popen[bytes]":
    python, script = SIDES[side]
    words = [python, str(HERE / script), "--dir", str(folder), str(life), str(runs)]
    with (folder / f"errors-{life}.txt").open("w") as errors:
        return subprocess.Popen(words, cwd=folder, stderr=errors, stdout=errors)


def _until(holds: "object", process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise SystemExit("a worker ended, or took too long; see its errors-*.txt")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
