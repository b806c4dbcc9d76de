"""PostgreSQL: Buoy beside the driver's raw commits, and beside DBOS and Absurd.

All on one real server, which is started for it, interleaved, as ratios of medians. A missed target is printed, not
asserted. Needs the extra `dev`; DBOS and Absurd are left out unless `setup_dbos.sh` and `setup_absurd.sh` were run.

Usage: python benchmarks/postgres.py [--rounds R] [--runs N] [--steps S] [--json]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import psycopg  # noqa: E402
from buoy_worker import steps_in_row  # noqa: E402
from tests.postgres_server import Server, start_server  # noqa: E402

import buoy  # noqa: E402

HERE = Path(__file__).resolve().parent
DBOS_PYTHON = HERE / ".venv-dbos" / "bin" / "python"
ABSURD_PYTHON = HERE / ".venv-absurd" / "bin" / "python"
FLOWS = HERE / "buoy_worker.py"
TIMEOUT_S = 600.0
# Raw commits and sequential steps take turns, so often in each round.
TURNS = 12
TARGETS = {
    "sequential steps / raw commits": 0.6,
    "runs / DBOS": 10.0,
    "runs / Absurd": 4.0,
}


async def sequential(server: Server, schema: str, rows: int) -> tuple[float, float]:
    """Raw commits per second, one row about as large as a step's in each, and steps per second of one run at a time.

    In turns of a fraction of a second: a busy disk gives twice as many syncs in one second as in the next.
    """
    raw: list[float] = []
    steps: list[float] = []
    with psycopg.connect(server.url("raw").partition("&schema")[0], autocommit=True) as session:
        session.execute(f"CREATE TABLE {schema}_raw (run int, seq bigint, body bytea, PRIMARY KEY (run, seq))")
        insert = f"INSERT INTO {schema}_raw VALUES (%s, %s, %s)"
        async with buoy.open(server.url(schema), workflows=[steps_in_row]) as app:
            for turn in range(TURNS + 1):
                began = perf_counter()
                for seq in range(rows):
                    session.execute(insert.encode(), (turn, seq, b"x" * 200))
                between = perf_counter()
                await (await app.start(steps_in_row, rows)).result()
                raw.append(rows / (between - began))
                steps.append(rows / (perf_counter() - between))
    # The first turn warms up.
    return statistics.median(raw[1:]), statistics.median(steps[1:])


def of_worker(python: str, script: str, url: str, *words: str) -> float:
    """Steps per second of one measurement in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(HERE / script), "--dir", folder, *words]
        env = {**os.environ, "BENCH_STORE": url}
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return float(json.loads(done.stdout.strip().splitlines()[-1])["steps_per_s"])


def one_round(server: Server, number: int, args: argparse.Namespace) -> dict[str, float]:
    """Each measurement once, in a schema or a database of its own."""
    runs, steps = args.runs, args.steps
    mine = sys.executable
    raw, steps_per_s = asyncio.run(sequential(server, f"s{number}", max(1, args.rows // TURNS)))
    found = {"raw commits/s": raw, "sequential steps/s": steps_per_s}
    found["runs: Buoy steps/s"] = of_worker(
        mine, FLOWS.name, server.url(f"c{number}"), "concurrent", str(runs), str(steps)
    )
    # A tenth of the runs for the others: their rates do not depend on the number, and it would take minutes.
    few = str(max(1, runs // 10))
    if DBOS_PYTHON.exists():
        _make_database(server, f"dbos{number}")
        url = f"postgresql://postgres@/dbos{number}?host={server.folder}"
        found["runs: DBOS steps/s"] = of_worker(str(DBOS_PYTHON), "dbos_worker.py", url, "concurrent", few, str(steps))
    if ABSURD_PYTHON.exists():
        url = _absurd_database(server, f"absurd{number}")
        found["runs: Absurd steps/s"] = of_worker(
            str(ABSURD_PYTHON), "absurd_worker.py", url, "concurrent", few, str(steps)
        )
    return found


def _make_database(server: Server, name: str) -> None:
    with psycopg.connect(server.url("x").partition("&schema")[0], autocommit=True) as session:
        session.execute(f'CREATE DATABASE "{name}"')


def _absurd_database(server: Server, name: str) -> str:
    """A database with Absurd's schema in it."""
    _make_database(server, name)
    url = f"postgresql://postgres@/{name}?host={server.folder}"
    env = {**os.environ, "PATH": f"{server.bin}:{os.environ['PATH']}"}
    command = [str(ABSURD_PYTHON.parent / "absurdctl"), "init", "-d", url]
    subprocess.run(command, env=env, check=True, capture_output=True)
    return url


def ratios(medians: dict[str, float]) -> dict[str, float]:
    pairs = {
        "sequential steps / raw commits": ("sequential steps/s", "raw commits/s"),
        "runs / DBOS": ("runs: Buoy steps/s", "runs: DBOS steps/s"),
        "runs / Absurd": ("runs: Buoy steps/s", "runs: Absurd steps/s"),
    }
    return {name: medians[a] / medians[b] for name, (a, b) in pairs.items() if a in medians and b in medians}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", type=int, default=3_000, help="raw commits and sequential steps")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    server = start_server(18)
    before = os.getloadavg()[0]
    rounds: list[dict[str, float]] = []
    for number in range(args.rounds):
        rounds.append(one_round(server, number, args))
        # As it comes: a run that is cut short has measured something, too.
        sys.stderr.write(json.dumps({name: round(value, 2) for name, value in rounds[-1].items()}) + "\n")
    server.stop()
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    found = ratios(medians)
    if args.json:
        sys.stdout.write(json.dumps({"load": before, "medians": medians, "ratios": found}) + "\n")
        return 0
    lines = [f"load {before:.1f}, {os.cpu_count()} cores, {args.rounds} rounds"]
    lines += [f"{name:32} {value:10.0f}" for name, value in medians.items()]
    for name, value in found.items():
        verdict = "met" if value >= TARGETS[name] else "MISSED"
        lines.append(f"{name:32} {value:6.2f}  (target {TARGETS[name]:g}, {verdict})")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
