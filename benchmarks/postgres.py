"""PostgreSQL: Buoy beside the driver's raw commits, beside DBOS and Absurd, and with one process beside two.

All on one real server, which is started for it, interleaved, as ratios of medians. A missed target is printed, not
asserted. Needs the extra `dev`; DBOS and Absurd are left out unless `setup_dbos.sh` and `setup_absurd.sh` were run.

Usage: python benchmarks/postgres.py [--rounds R] [--runs N] [--steps S] [--json]
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import psycopg  # noqa: E402
from buoy_worker import steps_in_row  # noqa: E402
from cpu_time import tree_cpu_s  # noqa: E402
from tests.postgres_server import Server, start_server  # noqa: E402

import buoy  # noqa: E402

HERE = Path(__file__).resolve().parent
DBOS_PYTHON = HERE / ".venv-dbos" / "bin" / "python"
ABSURD_PYTHON = HERE / ".venv-absurd" / "bin" / "python"
FLOWS = HERE / "buoy_worker.py"
LOOK_S = 0.1
# How long a worker that is ready may still be busy with its start.
SETTLE_S = 3.0
# Processor time is given for so many steps.
CPU_STEPS = 10_000
TIMEOUT_S = 600.0
TARGETS = {
    "sequential steps / raw commits": 0.6,
    "runs / DBOS": 10.0,
    "runs / Absurd": 4.0,
    "2 processes / 1": 1.5,
}


def raw_commits(server: Server, rows: int) -> float:
    """Rows per second: one row about as large as a step's in each commit, in autocommit."""
    address = server.url("raw").partition("&schema")[0]
    with psycopg.connect(address, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS raw_rows")
        session.execute("CREATE TABLE raw_rows (run text, seq bigint, body bytea, PRIMARY KEY (run, seq))")
        began = perf_counter()
        for seq in range(rows):
            session.execute("INSERT INTO raw_rows VALUES (%s, %s, %s)", ("run-1", seq, b"x" * 200))
        return rows / (perf_counter() - began)


def of_worker(python: str, script: str, url: str, *words: str) -> float:
    """Steps per second of one measurement in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(HERE / script), "--dir", folder, *words]
        env = {**os.environ, "BENCH_STORE": url}
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return float(json.loads(done.stdout.strip().splitlines()[-1])["steps_per_s"])


class OfPool(NamedTuple):
    """One measurement of a pool: its rate, and the processor time of its workers and of the server."""

    steps_per_s: float
    workers_cpu_s: float
    server_cpu_s: float


def of_pool(server: Server, schema: str, processes: int, runs: int, steps: int) -> OfPool:
    """A pool that works off runs which exist before it starts."""
    return asyncio.run(_of_pool(server, schema, processes, runs, steps))


async def _of_pool(server: Server, schema: str, processes: int, runs: int, steps: int) -> OfPool:
    url = server.url(schema)
    words = [sys.executable, "-m", "buoy", "worker", str(FLOWS), "--processes", str(processes), "--json", "--no-specs"]
    # The first whole sweep of each worker comes once in five minutes, and would fall into the measurement or not.
    words += ["--start-delay", "1h"]
    env = {**os.environ, "BUOY_STORE": url, "PYTHONPATH": str(HERE)}
    async with buoy.connect(url) as client:
        await asyncio.gather(*(client.start_as(f"r{n}", steps_in_row, steps) for n in range(runs)))
    with (
        tempfile.NamedTemporaryFile("w+") as out,
        psycopg.connect(server.url("x").partition("&schema")[0], autocommit=True) as session,
    ):
        # Parked until all workers are ready: what is measured is work, not how long a process takes to start.
        session.execute(f"UPDATE {schema}.tasks SET due_at = NULL")
        pool = subprocess.Popen(words, stdout=out, env=env, stdin=subprocess.DEVNULL)
        try:
            _wait(lambda: Path(out.name).read_text().count("worker_ready") >= processes, pool)
            sleep(SETTLE_S)
            began, pool_s, server_s = perf_counter(), tree_cpu_s(pool.pid), tree_cpu_s(server.pid)
            session.execute(f"UPDATE {schema}.tasks SET due_at = {schema}.at_once({schema}.store_now())")
            _wait(lambda: _ended(session, schema) >= runs, pool)
            took_s = perf_counter() - began
            share = CPU_STEPS / (runs * steps)
            return OfPool(
                runs * steps / took_s,
                (tree_cpu_s(pool.pid) - pool_s) * share,
                (tree_cpu_s(server.pid) - server_s) * share,
            )
        finally:
            pool.send_signal(signal.SIGTERM)
            pool.wait(TIMEOUT_S)


def _wait(holds: Callable[[], bool], pool: subprocess.Popen[bytes]) -> None:
    while not holds():
        assert pool.poll() is None, "the pool has ended"
        sleep(LOOK_S)


def _ended(session: psycopg.Connection[tuple[int]], schema: str) -> int:
    """By one statement on a session that stays: looking must not cost the server what it measures."""
    row = session.execute(f"SELECT count(*) FROM {schema}.runs WHERE ended").fetchone()
    assert row is not None
    return int(row[0])


def one_round(server: Server, number: int, args: argparse.Namespace) -> dict[str, float]:
    """Each measurement once, in a schema or a database of its own."""
    runs, steps = args.runs, args.steps
    found = {"raw commits/s": raw_commits(server, args.rows)}
    mine = sys.executable
    found["sequential steps/s"] = of_worker(mine, FLOWS.name, server.url(f"s{number}"), "sequential", str(args.rows))
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
    for processes in (1, 2):
        pool = of_pool(server, f"p{number}_{processes}", processes, runs, steps)
        found[f"{processes} process(es) steps/s"] = pool.steps_per_s
        found[f"{processes} process(es) workers' CPU s"] = pool.workers_cpu_s
        found[f"{processes} process(es) server's CPU s"] = pool.server_cpu_s
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
        "2 processes / 1": ("2 process(es) steps/s", "1 process(es) steps/s"),
    }
    return {name: medians[a] / medians[b] for name, (a, b) in pairs.items() if a in medians and b in medians}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000, help="raw commits and sequential steps")
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
    lines += [f"{name:32} {value:10.{2 if 'CPU' in name else 0}f}" for name, value in medians.items()]
    for name, value in found.items():
        verdict = "met" if value >= TARGETS[name] else "MISSED"
        lines.append(f"{name:32} {value:6.2f}  (target {TARGETS[name]:g}, {verdict})")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
