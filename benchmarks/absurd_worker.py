"""Absurd worker: one measurement of Absurd on PostgreSQL, in a process of its own.

Runs in the environment of `setup_absurd.sh`. The database holds Absurd's schema (`absurdctl init`).
Invariant: standard library, Absurd and the stopwatch only.

Usage: absurd_worker.py --dir DIR [--threads N] concurrent RUNS STEPS      Environment: BENCH_STORE, the database.
"""

import argparse
import os
from pathlib import Path

from absurd_sdk import Absurd
from stopwatch import Reading, Stopwatch, report

QUEUE = "bench"
# Tried with Absurd 0.5.1 on two busy cores, 200 x 5, in steps/s: 1 thread 64, 4 threads 73, 16 threads 76.
THREADS_DEFAULT = 16
BATCH = 50


def concurrent(url: str, runs: int, steps: int, threads: int) -> Reading:
    """`runs` tasks of `steps` steps, all started before the first is worked on; the clock runs from the first start."""
    client = Absurd(url, queue_name=QUEUE)
    client.create_queue(QUEUE)
    found: list[int] = []
    watch = Stopwatch()

    @client.register_task(name="steps_in_row")
    def steps_in_row(params, context):
        total = 0
        for number in range(params["steps"]):
            total += context.step(f"noop{number}", lambda number=number: number)
        found.append(total)
        if len(found) == runs:
            client.stop_worker()
        return total

    for _ in range(runs):
        client.spawn("steps_in_row", {"steps": steps})
    client.start_worker(concurrency=threads, batch_size=BATCH)
    rate = watch.rate(runs * steps)
    assert found == [steps * (steps - 1) // 2] * runs, "a run is missing or gave a wrong result"
    client.close()
    return {"steps_per_s": rate, "runs": runs, "steps": steps, "threads": threads}


def main() -> None:
    parser = argparse.ArgumentParser(description="One measurement of Absurd on PostgreSQL.")
    parser.add_argument("--dir", type=Path, required=True, help="not used: its data are in the database")
    parser.add_argument("--threads", type=int, default=THREADS_DEFAULT)
    commands = parser.add_subparsers(dest="what", required=True)
    many = commands.add_parser("concurrent")
    many.add_argument("runs", type=int)
    many.add_argument("steps", type=int)
    args = parser.parse_args()
    report(concurrent(os.environ["BENCH_STORE"], args.runs, args.steps, args.threads))


if __name__ == "__main__":
    main()
