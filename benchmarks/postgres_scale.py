"""Scale on PostgreSQL: how a worker idles beside many waiting runs, and how the store grows with its commits.

`idle`: the processor time of one worker and of the server, with so many runs that wait for months.
`growth`: sizes, dead rows and throughput after so many commits of groups of runs.
`filled`: a new store and one with the rows of so many commits, in turns, so that the load of the machine cancels out.

Usage: python benchmarks/postgres_scale.py idle [--runs N] [--seconds S] | growth [--commits N] | filled [--commits N]
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

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
TURN, TURNS = 400, 6
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
# As many commits as a run of five steps has.
FILLED_COMMITS = 8
_FILL = (
    """INSERT INTO {schema}.runs (run_id, workflow, status, ended, head_seq, created_at, updated_at, generation,
        orchestrator_task_id, doc)
        SELECT 'filled-' || md5(n::text), 'few_steps', 'completed', true, 8, n, n, 1, 'filled',
            decode(repeat('00', 420), 'hex') FROM generate_series(1, %(runs)s) n""",
    """INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
        SELECT r.number, seq, seq, 5, 'n', decode(repeat('00', 380), 'hex')
        FROM {schema}.runs r, generate_series(1, 8) seq WHERE r.orchestrator_task_id = 'filled' AND %(runs)s > 0""",
)
_PAGES = "SELECT sum(blks_hit + blks_read)::bigint FROM pg_stat_database WHERE datname = current_database()"
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


class Round(NamedTuple):
    """What one round of runs took, each per step: time, processor time here and of the server, pages touched."""

    wall_us: float
    worker_us: float
    server_us: float
    pages: float


async def _round(server: Server, url: str, app: Any, size: int) -> Round:
    def spent() -> tuple[float, ...]:
        pages = float(query(url, _PAGES)[0][0])
        return perf_counter() * 1e6, tree_cpu_s(os.getpid()) * 1e6, tree_cpu_s(server.pid) * 1e6, pages

    before = spent()
    runs = await asyncio.gather(*(app.start(few_steps, STEPS) for _ in range(size)))
    await asyncio.gather(*(run.result() for run in runs))
    return Round(*((now - then) / (size * STEPS) for now, then in zip(spent(), before, strict=True)))


async def _grow(server: Server, url: str, commits: int) -> list[Round]:
    async with buoy.open(url, workflows=[few_steps]) as app:
        return [await _round(server, url, app, ROUND) for _ in range(max(2, commits // (ROUND * STEPS)))]


def growth(server: Server, commits: int) -> str:
    url = server.url("growth")
    rounds = asyncio.run(_grow(server, url, commits))
    part = max(1, len(rounds) // 4)
    head = f"{len(rounds) * ROUND * STEPS} committed steps; first and last quarter, per step:"
    return "\n".join([head, *_compared(rounds[:part], rounds[-part:]), *_sizes(url, "growth")])


async def _in_turns(server: Server, small: str, large: str) -> tuple[list[Round], list[Round]]:
    found: tuple[list[Round], list[Round]] = ([], [])
    async with buoy.open(small, workflows=[few_steps]) as new, buoy.open(large, workflows=[few_steps]) as old:
        for number in range(2 * TURNS + 2):
            app, url = ((new, small), (old, large))[number % 2]
            took = await _round(server, url, app, TURN)
            if number >= 2:  # the first of each warms up
                found[number % 2].append(took)
    return found


def filled(server: Server, commits: int) -> str:
    small, large = server.url("small"), server.url("large")
    asyncio.run(_make(large))
    for statement in _FILL:
        query(large, statement, {"runs": commits // FILLED_COMMITS})
    # Else the vacuum of all that was inserted at once is measured.
    query(large, "VACUUM ANALYZE")
    query(large, "CHECKPOINT")
    new, old = asyncio.run(_in_turns(server, small, large))
    head = f"a new store and one with {commits} commits, {TURNS} rounds of {TURN * STEPS} steps each, per step:"
    return "\n".join([head, *_compared(new, old), *_sizes(large, "large")])


async def _make(url: str) -> None:
    async with buoy.connect(url) as client:
        await client.store.counts()


def _compared(first: list[Round], last: list[Round]) -> list[str]:
    lines = []
    for what in Round._fields:
        small, large = (statistics.median(getattr(each, what) for each in some) for some in (first, last))
        verdict = "met" if small / large >= GROWTH_TARGET else "MISSED"
        lines.append(f"{what:10} {small:7.1f}, {large:7.1f}: {small / large:.2f} (target {GROWTH_TARGET:g}, {verdict})")
    return lines


def _sizes(url: str, schema: str) -> list[str]:
    lines = []
    for table, heap, indexes, live, dead, hot, updates in query(url, _SIZES, (schema,)):
        share = f"{100 * hot / updates:.0f} % heap-only" if updates else "no updates"
        lines.append(
            f"{table:12} {heap / 2**20:8.1f} MiB, indexes {indexes / 2**20:7.1f} MiB, {live} live, {dead} dead, {share}"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    idles = commands.add_parser("idle")
    idles.add_argument("--runs", type=int, default=100_000)
    idles.add_argument("--seconds", type=float, default=60.0)
    for name in ("growth", "filled"):
        commands.add_parser(name).add_argument("--commits", type=int, default=1_000_000)
    args = parser.parse_args()
    server = start_server(18)
    load = os.getloadavg()[0]
    try:
        if args.what == "idle":
            found = idle(server, args.runs, args.seconds)
        else:
            found = (growth if args.what == "growth" else filled)(server, args.commits)
    finally:
        server.stop()
    sys.stdout.write(f"load {load:.1f}\n{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
