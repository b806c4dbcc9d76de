"""Held runs: runs that this runner holds by the store and does not drive, or drives from an old state.

A claim whose answer was lost leaves such a run, and so does a release that failed.
Invariant: this is only a hint. The page may be old when it is read, so the caller checks the holder again before it
takes a run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from buoy.core.ids import orchestrate_task_id
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.ports.records import Released, RunQuery, Task

if TYPE_CHECKING:
    from buoy.core.log.document import Document
    from buoy.engine.process.isolation import IsolationSlot
    from buoy.engine.process.runner import Runner


async def forgotten(runner: Runner, isolation: IsolationSlot) -> AsyncIterator[tuple[Task, int]]:
    """The task of each such run, with the number of events in its document. Runs that wait to be alone do not count.

    While a run is alone here, or waits for that, others are given back instead.
    """
    cursor: str | None = None
    while True:
        page = await runner.store.find_runs(RunQuery(holder=runner.id), cursor, RUNS_PAGE_MAX)
        for record in page.runs:
            doc = record.document
            execution = runner.executions.get(doc.run_id)
            if execution is not None and execution.ledger.in_flight:
                runner.intake.request_reconcile()  # what it knows may be old, or about to be new
                continue
            if execution is not None and execution.ledger.durable_seq >= doc.head_seq:
                continue
            if execution is not None:
                runner.drop(doc.run_id)  # another runner moved the run on; the next write here would be fenced
            elif doc.run_id in runner.releases or doc.run_id in isolation:
                continue
            elif runner.info.queues and doc.queue not in runner.info.queues:
                # We only started it, and gave it back: a document that was made again from the log names us as holder.
                _give_back(runner, doc)
                continue
            if isolation.wanted:
                # A run is, or wants to be, alone here.
                if isolation.takes_work:
                    _give_back(runner, doc)
                else:
                    runner.intake.request_reconcile()
                continue
            task_id = record.envelope.orchestrator_task_id or orchestrate_task_id(doc.run_id, 1)
            yield Task(task_id, doc.run_id, doc.workflow, doc.queue), doc.head_seq
        cursor = page.cursor
        if cursor is None:
            return


def _give_back(runner: Runner, doc: Document) -> None:
    now = runner.clock.now()
    runner.releases.add(doc.run_id, Released(due_at=now, now=now), doc.head_seq)
