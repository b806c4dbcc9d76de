"""Scale on PostgreSQL: how a worker idles beside many waiting runs, and how the store grows with its commits.

`idle`: the processor time of one worker and of the server, with so many runs that wait for months.
`growth`: sizes, dead rows and throughput after so many commits of groups of runs.

Usage: python benchmarks/postgres_scale.py idle [--runs N] [--seconds S] | growth [--commits N]
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from cpu_time import tree_cpu_s  # noqa: E402
from tests.postgres_server import Server, query, start_server  # noqa: E402

import buoy  # noqa: E402

FLOWS = Path(__file__).resolve()
IDLE_TARGET_PERCENT = 2.0
GROWTH_TARGET = 0.8
# From its start a worker looks at all that is stale; that is not idling.
SETTLE_S = 20.0
TIMEOUT_S = 60.0
ROUND = 2_000
STEPS = 5
LOOK_S = 0.1
MODEL = "model-run"
_COPIES = (
    """INSERT INTO {schema}.runs (run_id, workflow, stack, env, status, ended, head_seq, created_at, updated_at,
        generation, orchestrator_task_id, parent_run, parent_leaf, doc)
        SELECT r.run_id || n, workflow, stack, env, status, ended, head_seq, created_at, updated_at, generation,
            r.run_id || n || ':orchestrate:' || generation, parent_run, parent_leaf,
            convert_to(replace(convert_from(doc, 'UTF8'), r.run_id, r.run_id || n), 'UTF8')
        FROM {schema}.runs r, generate_series(1, %(runs)s) n WHERE r.run_id = %(model)s""",
    """INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
        SELECT c.number, l.first_seq, l.last_seq, l.tx, l.nonce, l.body
        FROM {schema}.runs r JOIN {schema}.log l ON l.run = r.number
        JOIN {schema}.runs c ON c.run_id <> r.run_id WHERE r.run_id = %(model)s AND %(runs)s > 0""",
    """INSERT INTO {schema}.tasks (run, task_id, run_id, workflow, queue, stack, env, due_at, seen, inbox_head, cause,
        evidence)
        SELECT c.number, c.orchestrator_task_id, c.run_id, t.workflow, t.queue, t.stack, t.env, t.due_at, t.seen,
            t.inbox_head, t.cause, t.evidence FROM {schema}.tasks t JOIN {schema}.runs c ON c.run_id <> t.run_id
        WHERE t.run_id = %(model)s AND %(runs)s > 0""",
)
_SIZES = """SELECT relname, pg_relation_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup, n_tup_hot_upd,
    n_tup_upd FROM pg_stat_user_tables WHERE schemaname = %s AND n_live_tup + n_dead_tup > 0 ORDER BY relname"""


@buoy.step
async def noop(n: int) -> int:
    return n


@buoy.workflow
async def few_steps(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await noop(number)
    return total


@buoy.workflow
async def waits() -> None:
    await buoy.sleep("30d")


async def _start(url: str) -> None:
    """One run that begins, sleeps, and is given back."""
    async with buoy.open(url, workflows=[waits]) as app:
        await app.start_as(MODEL, waits)
        while (await app.store.counts()).get("waiting", 0) < 1:
            await asyncio.sleep(LOOK_S)


def _copy(url: str, runs: int) -> None:
    """Copies the rows of that run: driving 100,000 runs takes minutes, and leaves the same rows."""
    for statement in _COPIES:
        query(url, statement, {"model": MODEL, "runs": runs - 1})


def idle(server: Server, runs: int, seconds: float) -> str:
    url = server.url("idle")
    asyncio.run(_start(url))
    _copy(url, runs)
    query(url, "VACUUM ANALYZE")
    words = [sys.executable, "-m", "buoy", "worker", str(FLOWS), "--no-specs"]
    worker = subprocess.Popen(words, env={**os.environ, "BUOY_STORE": url}, stdout=subprocess.DEVNULL)
    try:
        sleep(SETTLE_S)
        began, before = perf_counter(), (tree_cpu_s(worker.pid), tree_cpu_s(server.pid))
        sleep(seconds)
        took_s = perf_counter() - began
        shares = [
            100.0 * (after - start) / took_s
            for after, start in zip((tree_cpu_s(worker.pid), tree_cpu_s(server.pid)), before, strict=True)
        ]
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(TIMEOUT_S)
    verdict = "met" if sum(shares) < IDLE_TARGET_PERCENT else "MISSED"
    return (
        f"{runs} waiting runs, {took_s:.0f} s: worker {shares[0]:.2f} % and server {shares[1]:.2f} % of a core "
        f"(target {IDLE_TARGET_PERCENT:g} % together, {verdict})"
    )


async def _grow(server: Server, url: str, commits: int) -> tuple[list[float], list[float]]:
    """Of each round: steps per second, and steps per second of processor time of this process and the server."""
    walls, cpus = [], []
    async with buoy.open(url, workflows=[few_steps]) as app:
        for _ in range(max(2, commits // (ROUND * STEPS))):
            began, used = perf_counter(), tree_cpu_s(os.getpid()) + tree_cpu_s(server.pid)
            runs = await asyncio.gather(*(app.start(few_steps, STEPS) for _ in range(ROUND)))
            await asyncio.gather(*(run.result() for run in runs))
            walls.append(ROUND * STEPS / (perf_counter() - began))
            cpus.append(ROUND * STEPS / (tree_cpu_s(os.getpid()) + tree_cpu_s(server.pid) - used))
    return walls, cpus


def growth(server: Server, commits: int) -> str:
    url = server.url("growth")
    walls, cpus = asyncio.run(_grow(server, url, commits))
    lines = [f"{len(walls) * ROUND * STEPS} committed steps; first and last quarter:"]
    for what, rates in (("second", walls), ("second of processor time", cpus)):
        part = max(1, len(rates) // 4)
        first, last = sum(rates[:part]) / part, sum(rates[-part:]) / part
        verdict = "met" if last / first >= GROWTH_TARGET else "MISSED"
        lines.append(
            f"steps per {what}: {first:.0f}, {last:.0f}: {last / first:.2f} (target {GROWTH_TARGET:g}, {verdict})"
        )
    for table, heap, indexes, live, dead, hot, updates in query(url, _SIZES, ("growth",)):
        share = f"{100 * hot / updates:.0f} % heap-only" if updates else "no updates"
        lines.append(
            f"{table:12} {heap / 2**20:8.1f} MiB, indexes {indexes / 2**20:7.1f} MiB, {live} live, {dead} dead, {share}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    idles = commands.add_parser("idle")
    idles.add_argument("--runs", type=int, default=100_000)
    idles.add_argument("--seconds", type=float, default=60.0)
    commands.add_parser("growth").add_argument("--commits", type=int, default=1_000_000)
    args = parser.parse_args()
    server = start_server(18)
    load = os.getloadavg()[0]
    try:
        found = idle(server, args.runs, args.seconds) if args.what == "idle" else growth(server, args.commits)
    finally:
        server.stop()
    sys.stdout.write(f"load {load:.1f}\n{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
