"""What a sweep costs in a store with many finished runs: statements, counted exactly, and time.

The finished runs are copies of one real run, made by SQL: a million of them by way of the engine would take an hour.
"""

import shutil
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.records import Ended, Evidence, Held, RunnerInfo, RunnerRecord, TaskChange, Write
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from buoy.stores.sqlite.store import SqliteStore

ORPHANS = 100
ROUNDS = 5
_COPY = """WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
    INSERT INTO runs (run_id, workflow, status, ended, head_seq, created_at, updated_at, generation,
    orchestrator_task_id, parent_run, parent_leaf, doc)
    SELECT 'old-' || i, workflow, status, ended, head_seq, created_at, updated_at, generation,
    orchestrator_task_id, parent_run, parent_leaf, doc FROM n CROSS JOIN runs WHERE run_id = 'old-0'"""
_COPY_LOG = """WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
    INSERT INTO log (run, first_seq, last_seq, nonce, body)
    SELECT (SELECT number FROM runs WHERE run_id = 'old-' || i), first_seq, last_seq, nonce, body
    FROM n CROSS JOIN log WHERE run = (SELECT number FROM runs WHERE run_id = 'old-0')"""


class AllDead:
    """Liveness without processes: a runner called `dead-...` is dead."""

    def announce(self, runner: RunnerId) -> None: ...

    def withdraw(self, runner: RunnerId) -> None: ...

    def sees(self, record: RunnerRecord) -> bool:
        return True

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        return {"proof": "lock free"} if record.info.id.startswith("dead-") else None


async def sweep_costs(largest: int, folder: Path) -> dict[str, object]:
    """By number of finished runs: statements of one sweep, and its median time."""
    scratch = Path(tempfile.mkdtemp(prefix="sweep-", dir=folder))
    found: dict[str, Any] = {}
    try:
        store = await SqliteStore.open(scratch / "runs.db", clock=SystemClock())
        try:
            await _plant(store, "old-0", Ended(), _CLAIMED, e.WorkflowCompleted())
            finished = 1
            size = 1_000
            while size <= largest:
                _copy(scratch / "runs.db", finished, size)
                finished = size
                found[str(size)] = await _measure(store, size)
                sys.stderr.write(f"{size:>9,} finished: {found[str(size)]}\n")
                size *= 10
        finally:
            await store.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sizes = list(found)
    ratio = round(found[sizes[-1]]["median_ms"] / found[sizes[0]]["median_ms"], 2)
    same = len({each["statements"] for each in found.values()}) == 1
    return {"orphans": ORPHANS, "by_finished": found, "time_ratio": ratio, "statements_constant": same}


def _copy(path: Path, first: int, size: int) -> None:
    connection = sqlite3.connect(path, timeout=60.0)
    with connection:
        connection.execute(_COPY, (first, size - 1))
        connection.execute(_COPY_LOG, (first, size - 1))
    connection.close()


async def _measure(store: SqliteStore, size: int) -> dict[str, Any]:
    asked: list[str] = []
    client = Client(
        store, Registry(), clock=SystemClock(), ids=SystemIds(), liveness=AllDead(), actor="sweeper-bench"
    )  # fmt: skip
    times: list[float] = []
    statements: set[int] = set()
    for round_ in range(ROUNDS):
        dead = RunnerId(f"dead-{size}-{round_}")
        await store.register(
            RunnerInfo(id=dead, host="h", boot_id="b", pid_namespace="n", pid=1, process_started="1", nonce=dead)
        )
        for number in range(ORPHANS):
            # Half of them resume, half are failed one by one, which costs more.
            policy = "resume" if number % 2 else "fail"
            await _plant(store, f"lost-{size}-{round_}-{number}", Held(dead), _CLAIMED, _STARTED, policy=policy)
        for lane in (store._reader, store._writer):
            lane._connection.set_trace_callback(asked.append)
        asked.clear()
        began = time.perf_counter()
        swept = await sweep(client, SweepOptions(stale_after_s=3600.0))
        times.append(time.perf_counter() - began)
        statements.add(len(asked))
        assert swept.resumed + swept.failed == ORPHANS, swept
        for lane in (store._reader, store._writer):
            lane._connection.set_trace_callback(None)
        await _end_all(store, size, round_)
    return {"statements": min(statements), "median_ms": round(median(times) * 1000, 1)}


async def _end_all(store: SqliteStore, size: int, round_: int) -> None:
    """What was resumed ends, so that the next round finds the same."""
    for number in range(1, ORPHANS, 2):
        run = RunId(f"lost-{size}-{round_}-{number}")
        log = await store.events(run)
        end = e.Event(len(log) + 1, log[-1].at, e.WorkflowCompleted(), nonce=f"{run}-end")
        told = document(fold(run, [*log, end]))
        await store.commit([Write(run, len(log), (end,), told, Ended())])


_CLAIMED = e.Claimed(runner="dead", cause="created")
_STARTED = e.StepStarted(leaf=LeafId("a#1"), name="a")


async def _plant(store: SqliteStore, run_id: str, task: TaskChange, *bodies: e.Body, policy: str = "resume") -> None:
    run, now = RunId(run_id), time.time()
    created = e.WorkflowCreated(workflow="job", input=msgspec.Raw(b"{}"), policy=policy)
    events = tuple(
        e.Event(place, now, body, nonce=run_id if place == 1 else None)
        for place, body in enumerate((created, *bodies), 1)
    )
    await store.commit([Write(run, 0, events, document(fold(run, events)), task)])
