"""A process of `test_folder_processes`: claims runs of a folder store, does some steps of each and ends it.

`python -m tests.stores.folder_worker FOLDER RUNNER`; it runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.ports.records import Committed, Ended, Held, Released, TaskChange, Wants, Write
from buoy.stores.objects.folder_store import FolderStore
from buoy.testing.contracts.harness import claimed, completed, register, started

STEPS = 20


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


async def work(folder: Path, name: str) -> None:
    store = await FolderStore.open(folder, clock=RealClock(), durable=False)
    runner = RunnerId(name)
    await register(store, name)
    print("ready", flush=True)
    while True:
        tasks = await store.claim_tasks(runner, Wants(), 3)
        for task in tasks:
            await drive(store, runner, task.run_id)
        if not tasks:
            await store.wait_for_change(0.2)


async def drive(store: FolderStore, runner: RunnerId, run_id: RunId) -> None:
    """Continues where the log ends: one step at each visit, then back into the queue."""
    log = await store.events(run_id)
    if not await append(store, run_id, log, runner, [claimed(runner)], Held(runner)):
        return
    done = sum(isinstance(event.body, e.StepCompleted) for event in log)
    inbox = await store.inbox(run_id)
    assert [each.number for each in inbox] == list(range(1, len(inbox) + 1))
    if done == STEPS:
        await append(store, run_id, log, runner, [e.WorkflowCompleted()], Ended())
        return
    step: list[e.Body] = [completed(done)] if fold(run_id, log).open else [started(done), completed(done)]
    await append(store, run_id, log, runner, step, Released(due_at=time.time(), now=time.time(), seen=len(inbox)))


async def append(
    store: FolderStore, run_id: RunId, log: list[e.Event], runner: str, bodies: list[e.Body], task: TaskChange
) -> bool:
    events = [
        e.Event(len(log) + place, time.time(), body, nonce=f"{runner}-{len(log)}" if place == 1 else None)
        for place, body in enumerate(bodies, 1)
    ]
    write = Write(run_id, len(log), tuple(events), document(fold(run_id, [*log, *events])), task)
    (outcome,) = await store.commit([write])
    log += events
    return isinstance(outcome, Committed)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
