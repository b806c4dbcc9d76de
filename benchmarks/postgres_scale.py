"""Scale on PostgreSQL: how a worker idles beside many waiting runs, and how the store grows with its commits.

`idle`: the processor time of one worker and of the server, with so many runs that wait for months.
`growth`: sizes, dead rows and throughput after so many real commits in a row. With `--folder` the server's data stay
there, and the next call continues: a million commits can be made in pieces of some minutes each.
`filled`: a new store and one with the rows of so many commits, in turns, so that the load of the machine cancels out.
Each store has a process of its own (`postgres_rounds.py`).
`aged`: a process and its store that make so many real commits, beside processes and stores that are new at each turn.
What grows with the commits of one process shows here; `filled` shows what grows with the rows of the store.

Usage: python benchmarks/postgres_scale.py idle [--runs N] [--seconds S] | filled [--commits N] | aged [--commits N]
       python benchmarks/postgres_scale.py growth [--commits N] [--minutes M] [--folder DIR]
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from cpu_time import tree_cpu_s  # noqa: E402
from postgres_rounds import COMMITS_PER_RUN, STEPS, Player, Round  # noqa: E402
from tests.postgres_server import Server, query, start_server  # noqa: E402

import buoy  # noqa: E402

FLOWS = Path(__file__).resolve()
IDLE_TARGET_PERCENT = 2.0
GROWTH_TARGET = 0.8
# From its start a worker looks at all that is stale; that is not idling.
SETTLE_S = 20.0
TIMEOUT_S = 60.0
ROUND = 2_000
ROUND_COMMITS = ROUND * COMMITS_PER_RUN
TURN, TURNS = 400, 6
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
_SIZES = """SELECT relname, pg_relation_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup, n_tup_hot_upd,
    n_tup_upd FROM pg_stat_user_tables WHERE schemaname = %s AND n_live_tup + n_dead_tup > 0 ORDER BY relname"""


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


def growth(server: Server, commits: int, minutes: float) -> str:
    """Plays rounds until there are so many commits, or the time is over. A kept server continues where it was."""
    url, kept = server.url("growth"), server.folder / "rounds.jsonl"
    rounds = [Round(*json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    until = perf_counter() + 60.0 * minutes
    with Player(server, url) as player, kept.open("a") as file:
        while len(rounds) * ROUND_COMMITS < commits and perf_counter() < until:
            rounds.append(player.play(ROUND))
            file.write(f"{json.dumps(rounds[-1])}\n")
            file.flush()
    part = max(1, len(rounds) // 4)
    head = (
        f"{len(rounds) * ROUND_COMMITS} of {commits} commits; the first {ROUND_COMMITS} and the last quarter, per step:"
    )
    quarters = "first and last quarter:"
    compared = [*_compared(rounds[:1], rounds[-part:]), quarters, *_compared(rounds[:part], rounds[-part:])]
    return "\n".join([head, *compared, *_sizes(url, "growth")])


def filled(server: Server, commits: int) -> str:
    small, large = server.url("small"), server.url("large")
    asyncio.run(_make(large))
    for statement in _FILL:
        query(large, statement, {"runs": commits // FILLED_COMMITS})
    # Else the vacuum of all that was inserted at once is measured.
    query(large, "VACUUM ANALYZE")
    query(large, "CHECKPOINT")
    found: tuple[list[Round], list[Round]] = ([], [])
    with Player(server, small) as new, Player(server, large) as old:
        for number in range(2 * TURNS + 2):
            took = (new, old)[number % 2].play(TURN)
            if number >= 2:  # the first of each warms up
                found[number % 2].append(took)
    head = f"a new store and one with {commits} commits, {TURNS} rounds of {TURN * STEPS} steps each, per step:"
    return "\n".join([head, *_compared(*found), *_sizes(large, "large")])


def aged(server: Server, commits: int) -> str:
    new: list[Round] = []
    old: list[Round] = []
    with Player(server, server.url("old")) as worker:
        worker.play(ROUND)
        for turn in range(commits // (2 * ROUND_COMMITS)):
            with Player(server, server.url(f"new{turn}")) as other:
                other.play(ROUND)
                for _ in range(2):
                    new.append(other.play(ROUND))
                    old.append(worker.play(ROUND))
    half = len(old) // 2
    head = (
        f"a new process and store, and one that makes {len(old) * ROUND_COMMITS} commits in turns with them, per step;"
    )
    halves = [*_compared(new[:half], old[:half]), "the second half:", *_compared(new[half:], old[half:])]
    return "\n".join([head, "the first half:", *halves, *_sizes(server.url("old"), "old")])


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
    for name, commits in (("growth", 1_000_000), ("filled", 1_000_000), ("aged", 200_000)):
        commands.add_parser(name).add_argument("--commits", type=int, default=commits)
    grows = commands.choices["growth"]
    grows.add_argument("--minutes", type=float, default=30.0, help="stop after so long, even with fewer commits")
    grows.add_argument("--folder", type=Path, help="where the server and its rounds stay; a short path")
    args = parser.parse_args()
    server = start_server(18, folder=getattr(args, "folder", None))
    load = os.getloadavg()[0]
    try:
        if args.what == "idle":
            found = idle(server, args.runs, args.seconds)
        elif args.what == "growth":
            found = growth(server, args.commits, args.minutes)
        elif args.what == "aged":
            found = aged(server, args.commits)
        else:
            found = filled(server, args.commits)
    finally:
        # In order, so that the counts of rows stay: a kept server continues.
        server.control("stop", "-m", "fast")
    sys.stdout.write(f"load {load:.1f}\n{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
