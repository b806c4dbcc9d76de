"""The storm: workers under load are killed at random, for as long as you like.

    python -m tests.crash.storm --seconds 60                  half a minute on each store
    python -m tests.crash.storm --seconds 600 --store sqlite --workers 3 --seed 4
    python -m tests.crash.storm --seconds 180 --store postgres   the server is restarted all the while

Most of them get SIGKILL, some SIGTERM, some SIGSTOP and after a while SIGCONT; a new one comes for each that ended.
When the storm is over every run must end. Each is judged by its log and by what the witness saw, outside of the store.

Exit code: 0 every promise was kept, 1 one was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import ACTIVE
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import Problem
from buoy.ports.records import RunQuery
from tests.patience import LOOK_S, PATIENCE_S, until
from tests.postgres_server import Server, start_server

from .flows import WITNESS, expected, job, note, sync_job
from .gate import STORES
from .harness import CrashHarness, Seen, check_executions
from .verdict import LOST, Story, again, broken, in_witness_time, recoveries

SPAN_S = 0.05
KILL_EVERY_S = (0.05, 0.4)
SLEEP_S = (0.2, 1.5)
CALM_S = PATIENCE_S
CHANCES = (("kill", 0.75), ("term", 0.15), ("stop", 0.10))


class Storm:
    """One store, some workers, and what happens to them."""

    def __init__(self, harness: CrashHarness, workers: int, load: int, chance: random.Random) -> None:
        self.harness = harness
        self.living = [harness.fork_worker() for _ in range(workers)]
        self.runs: list[str] = []
        self.struck: Counter[str] = Counter()
        # Kills of a worker with a step under way: each leaves a run that another one must take over.
        self.hits = 0
        # Workers that were gone before anything struck them.
        self.deserted: list[int] = []
        self.killed: dict[int, float] = {}
        # The last time that each stood still, and all times that anybody did.
        self.asleep: dict[int, tuple[float, float]] = {}
        self.pauses: list[tuple[float, float]] = []
        self._load = load
        self._chance = chance
        self._started = 0

    async def rage(self, client: Client, seconds: float, hits_min: int) -> None:
        """So long, and until so many were killed at work: a slow machine needs more time for them."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends or self.hits < hits_min:
            await self._work_for_all(client)
            await asyncio.sleep(self._chance.uniform(*KILL_EVERY_S))
            await until(lambda: self._a_worker_executes(client), f"one of {self.living} to execute a run")
            await self._strike()

    async def _a_worker_executes(self, client: Client) -> bool:
        """Whether one did. If none did, the store may have refused the work, or the workers ended by themselves."""
        if not set(self.living).isdisjoint(self.harness.latest()):
            return True
        self._replace_the_missing()
        await self._work_for_all(client)
        return False

    async def _work_for_all(self, client: Client) -> None:
        """Starts so many runs that every blow hits a worker that executes something."""
        try:
            page = await client.runs(RunQuery(statuses=tuple(ACTIVE)), limit=self._load)
            for _ in range(self._load - len(page.runs)):
                await self._start(client)
        except Problem:
            return  # no answer: a process was stopped while it had the store's lock; the next round continues

    async def _start(self, client: Client) -> None:
        """Tried again under the same name until it is acknowledged; only then does it count."""
        run_id = f"run{self._started}"
        workflow = sync_job if self._started % 3 == 2 else job
        await client.start_as(run_id, workflow, self._started, SPAN_S)
        note("started", run_id)
        self.runs.append(run_id)
        self._started += 1

    def _victim(self) -> int:
        """Mostly one that was just seen at work: a worker with nothing in its hands has nothing to lose."""
        busy = [pid for pid in self.harness.latest() if pid in self.living]
        return self._chance.choice(busy if busy and self._chance.random() < 0.8 else self.living)

    def _replace_the_missing(self) -> None:
        """A worker that ended by itself breaks a promise, but the storm continues."""
        for pid in [pid for pid in self.living if not Path(f"/proc/{pid}").exists()]:
            self.deserted.append(pid)
            self.living.remove(pid)
            self.living.append(self.harness.fork_worker())

    async def _strike(self) -> None:
        self._replace_the_missing()
        kinds, weights = zip(*CHANCES, strict=True)
        kind = self._chance.choices(kinds, weights)[0]
        pid = self._victim()
        self.struck[kind] += 1
        match kind:
            case "stop":
                began = time.time()
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(self._chance.uniform(*SLEEP_S))
                os.kill(pid, signal.SIGCONT)
                self.asleep[pid] = (began, time.time())
                self.pauses.append(self.asleep[pid])
            case _:
                self.living.remove(pid)
                at = time.time()
                await asyncio.to_thread(self.harness.kill, pid, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
                if kind == "kill":
                    self.killed[pid] = at
                    self.hits += self.harness.died_at_work(pid)
                self.living.append(self.harness.fork_worker())


async def storm(
    store: str,
    seconds: float,
    workers: int,
    load: int,
    seed: int,
    folder: Path,
    hits_min: int = 0,
    url: str | None = None,
    trouble: Callable[[], Awaitable[None]] | None = None,
) -> dict[str, Any]:
    """What it was like, and every promise that was broken. `trouble`: what else happens until the storm is over."""
    harness = CrashHarness(folder, told=True)
    harness.url = url or harness.url_of("sqlite" if store == "sqlite" else "file")
    os.environ[WITNESS] = str(harness.witness)
    try:
        blow = Storm(harness, workers, load, random.Random(f"{seed} {store}"))
        async with buoy.connect(harness.url) as client:
            more = None if trouble is None else asyncio.ensure_future(trouble())
            try:
                await blow.rage(client, seconds, hits_min)
            finally:
                if more is not None:
                    await _ended(more)
            logs = await _calm(client, blow.runs)
        return _figures(store, blow, logs, harness)
    finally:
        harness.close()


async def _ended(trouble: asyncio.Future[None]) -> None:
    """Ends it. What went wrong there is raised: nothing that comes after it could be understood."""
    trouble.cancel()
    await asyncio.wait([trouble])
    if not trouble.cancelled():
        trouble.result()


async def _calm(client: Client, runs: list[str]) -> dict[str, list[e.Event]]:
    """The logs, when all have ended or are paused, or after a long time."""
    deadline = time.monotonic() + CALM_S
    waiting = set(runs)
    while waiting and time.monotonic() < deadline:
        try:
            page = await client.runs(RunQuery(statuses=tuple(ACTIVE)), limit=1000)
            waiting = {record.document.run_id for record in page.runs}
        except Problem:
            pass
        await asyncio.sleep(LOOK_S)
    return {run_id: await read_log(client.store, RunId(run_id)) for run_id in runs}


def _figures(store: str, blow: Storm, logs: dict[str, list[e.Event]], harness: CrashHarness) -> dict[str, Any]:
    by_run: dict[str, list[Seen]] = defaultdict(list)
    for each in harness.seen():
        by_run[each.run].append(each)
    if store == "postgres":
        logs = {run_id: in_witness_time(log, by_run[run_id]) for run_id, log in logs.items()}
    problems = [f"worker {pid} ended by itself" for pid in blow.deserted]
    bodies, recovered = 0, Counter[str]()
    for number, run_id in enumerate(blow.runs):
        story = Story(RunId(run_id), "resume", expected(number), logs[run_id], frozenset(), by_run[run_id], blow.asleep)
        problems += [f"{run_id}: {text}" for text in broken(story)]
        try:
            check_executions(by_run[run_id], logs[run_id], run_id, harness.killed_at)
        except AssertionError as error:
            problems.append(f"{run_id}: repeated: {error}")
        bodies += again(story)
        recovered += recoveries(logs[run_id])
    waits = sorted(_from_kill_to_next_step(blow, logs, by_run))
    return {
        "store": store,
        "runs": len(blow.runs),
        "struck": dict(blow.struck),
        "kills": blow.struck["kill"],
        "hits": blow.hits,
        "steps": sum(each.what == "start" for seen in by_run.values() for each in seen),
        "lost": sum(": lost:" in text or ": unended:" in text for text in problems),
        "repeated": sum(": repeated:" in text for text in problems),
        "again": bodies,
        "recoveries": dict(recovered),
        "taken_over": len(waits),
        "p50_s": _rank(waits, 0.50),
        "p99_s": _rank(waits, 0.99),
        "problems": problems,
    }


def _from_kill_to_next_step(
    blow: Storm, logs: dict[str, list[e.Event]], by_run: dict[str, list[Seen]]
) -> Iterator[float]:
    """For each run that a killed worker held: from the kill until another process executes a step of it.

    Recoveries while a process is stopped do not count: it may hold the lock of the store for any time.
    """
    for run_id, log in logs.items():
        for event in log:
            if not isinstance(event.body, e.Claimed) or event.body.cause != LOST:
                continue
            killed = blow.killed.get(int(event.body.evidence.get("pid") or 0))
            later = [each.at for each in by_run[run_id] if each.what == "start" and each.at >= event.at]
            if killed is None or not later:
                continue
            if not any(began <= min(later) and killed <= ended for began, ended in blow.pauses):
                yield min(later) - killed


def _rank(values: list[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(share * len(values)))], 3) if values else None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.storm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, on all stores together (60)")
    parser.add_argument("--store", choices=(*STORES, "both", "postgres"), default="both", help="on which store (both)")
    parser.add_argument("--workers", type=int, default=2, help="how many at the same time (2)")
    parser.add_argument("--load", type=int, default=40, help="runs that are under way at the same time (40)")
    parser.add_argument("--seed", type=int, default=0, help="who is struck when (0)")
    parser.add_argument("--folder", help="where the stores are made; a real disk")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args()
    stores = tuple(STORES) if options.store == "both" else (options.store,)
    found = []
    for store in stores:
        folder = Path(tempfile.mkdtemp(prefix="buoy-storm-", dir=options.folder))
        try:
            chosen = {} if store != "postgres" else _restarted_server(options.seed)
            share = options.seconds / len(stores)
            blown = storm(store, share, options.workers, options.load, options.seed, folder, **chosen)
            found.append(asyncio.run(blown))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found) if options.json else "\n".join(_in_words(each) for each in found))
    return 1 if any(each["problems"] for each in found) else 0


def _restarted_server(seed: int) -> dict[str, Any]:
    """A PostgreSQL server that is restarted without warning every 5 to 20 s."""
    server = start_server(18)
    return {"url": server.url("storm"), "trouble": lambda: restarts(server, seed, (5.0, 20.0))}


async def restarts(server: Server, seed: int, every_s: tuple[float, float]) -> None:
    """Restarts the server again and again, as after a power cut: it comes back by its write-ahead log."""
    chance = random.Random(seed)
    while True:
        await asyncio.sleep(chance.uniform(*every_s))
        # It comes to its end even if this task is cancelled: the server must be up then.
        restart = asyncio.ensure_future(asyncio.to_thread(server.control, "restart", "-m", "immediate"))
        try:
            await asyncio.shield(restart)
        except asyncio.CancelledError:
            await restart
            raise


def _in_words(found: dict[str, Any]) -> str:
    struck = ", ".join(f"{count} x {kind}" for kind, count in sorted(found["struck"].items()))
    p50, p99 = (f"{found[name]:.2f} s" if found[name] is not None else "-" for name in ("p50_s", "p99_s"))
    lines = [f"    {text}" for text in found["problems"][:20]]
    said = (
        f"{found['store']}: {struck}; {found['runs']} runs, {found['steps']} steps, {found['taken_over']} taken over; "
        f"{found['lost']} lost, {found['repeated']} repeated; from kill to next step {p50} (median), {p99} (99 of 100)"
    )
    return "\n".join([said, *lines])


if __name__ == "__main__":
    sys.exit(main())
