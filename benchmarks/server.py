"""The server's speed as ratios: a runner over HTTP against the store behind it; the API with many runs and few.

    python benchmarks/server.py [--runs 2000] [--steps 5] [--many 20000] [--few 1000]

Both halves of a ratio are measured in turns in one run, so that a busy machine slows them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from served import TOKEN, Server

import buoy


@buoy.step
async def add(n: int) -> int:
    return n + 1


@buoy.workflow
async def flow(steps: int) -> int:
    found = 0
    for _ in range(steps):
        found = await add(found)
    return found


async def drive(url: str, runs: int, steps: int) -> float:
    """Steps per second of one worker."""
    async with buoy.open(url, workflows=[flow]) as app:
        began = time.perf_counter()
        started = await asyncio.gather(*(app.start(flow, steps) for _ in range(runs)))
        await asyncio.gather(*(each.result() for each in started))
        return runs * steps / (time.perf_counter() - began)


def rate_over_http(folder: Path, runs: int, steps: int) -> float:
    server = Server(folder, "http.db")
    try:
        return asyncio.run(drive(server.url, runs, steps))
    finally:
        server.stop()


def compare_runner(runs: int, steps: int, rounds: int) -> float:
    """The median of the ratios of HTTP to the store behind it."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            direct = asyncio.run(drive(f"sqlite:///{folder}/direct.db", runs, steps))
            over = rate_over_http(folder, runs, steps)
        print(f"  {direct:8.0f} steps/s direct, {over:8.0f} over HTTP, ratio {over / direct:.2f}")
        found.append(over / direct)
    return statistics.median(found)


def fill(path: Path, runs: int) -> None:
    """Completed runs: the first is driven, the others are copies of its rows under other ids."""
    asyncio.run(drive(f"sqlite:///{path}", 1, 2))
    with sqlite3.connect(path) as connection:
        columns = [
            row[1] for row in connection.execute("PRAGMA table_info(runs)") if row[1] not in ("number", "run_id")
        ]
        names = ", ".join(columns)
        connection.execute(
            f"""WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {runs})
                INSERT INTO runs (run_id, {names})
                SELECT 'copy-' || n, {names} FROM counted, runs WHERE runs.number = 1"""
        )


def time_of(server: Server, path: str, times: int) -> float:
    """The median time of one answer, in milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        taken.append(1000 * (time.perf_counter() - began))
    connection.close()
    return statistics.median(taken)


def compare_lists(many: int, few: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "many.db", many)
        fill(folder / "few.db", few)
        large, small = Server(folder, "many.db"), Server(folder, "few.db")
        try:
            with sqlite3.connect(folder / "few.db") as connection:
                (real,) = connection.execute("SELECT run_id FROM runs WHERE number = 1").fetchone()
            with sqlite3.connect(folder / "many.db") as connection:
                (also,) = connection.execute("SELECT run_id FROM runs WHERE number = 1").fetchone()
            found = {}
            for label, one, other in (
                ("GET /runs", "/runs", "/runs"),
                ("GET /runs/{id}", f"/runs/{also}", f"/runs/{real}"),
            ):
                ratios = [time_of(large, one, 10) / time_of(small, other, 10) for _ in range(5)]
                found[label] = statistics.median(ratios)
            return found
        finally:
            large.stop()
            small.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=2_000)
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--many", type=int, default=20_000)
    options.add_argument("--few", type=int, default=1_000)
    given = options.parse_args()
    os.environ["BUOY_TOKEN"] = TOKEN
    ratio = compare_runner(given.runs, given.steps, given.rounds)
    print(f"a runner over HTTP: {ratio:.2f} of the store behind the server (wanted: 0.4 or more)")
    for label, times in compare_lists(given.many, given.few).items():
        print(f"{label} with {given.many:,} runs: {times:.2f} times as long as with {given.few:,} (wanted: 2 at most)")


if __name__ == "__main__":
    main()
