"""Task check: asks a queue that is not Buoy's whether the task of a run is alive there.

For programs whose own queue starts the workers: a run that is due is healthy for Buoy, but nothing executes it if its
job in that queue is lost.
Invariants: the queue is asked only about runs that a runner should be executing now, never about one that a living
runner holds or that waits. A check that fails is unknown, never "gone". What is wrong with the run itself is reported
whatever the queue says.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import RunId
from buoy.core.times import StoreTime
from buoy.errors import BadInput
from buoy.ports.records import RunRecord
from buoy.recovery.sweep.found import Found

# Findings about the executing process only.
_CARE = frozenset({"H1", "H2", "Q1", "Q2", "Q3", "Q4", "Q5"})
_HOLDER_GONE = frozenset({"H1", "Q3"})


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a run, by the names that another queue may know it by."""

    run_id: RunId
    task_id: str
    generation: int
    workflow: str
    queue: str
    status: str
    updated_at: float


# True: it is alive there. False or None: it has ended, or is not there.
TaskChecker: TypeAlias = Callable[[TaskView], "bool | Awaitable[bool | None] | None"]


async def checked(record: RunRecord, found: Found | None, checker: TaskChecker, now: StoreTime) -> Found | None:
    """The report about a run, given what Buoy itself found."""
    task_id = record.envelope.orchestrator_task_id
    if task_id is None or not _asks(record, found, now):
        return found
    doc = record.document
    view = TaskView(
        run_id=doc.run_id,
        task_id=task_id,
        generation=record.envelope.generation,
        workflow=doc.workflow,
        queue=doc.queue,
        status=doc.status,
        updated_at=doc.updated_at,
    )
    try:
        alive = await _answer(checker, view)
    except Exception as error:  # noqa: BLE001 - the caller's code: what it could not read is unknown, and is reported
        why = f"the task checker failed: {type(error).__name__}: {error}"
        return replace(found or Found.of(record), action="unknown", error=why)
    if not alive:
        return _gone(record, found, task_id)
    return None if found is None or _codes(found) <= _CARE else found


async def _answer(checker: TaskChecker, view: TaskView) -> bool:
    said = checker(view)
    answer = await said if inspect.isawaitable(said) else said
    if answer is not None and not isinstance(answer, bool):
        raise BadInput(f"the answer is neither True, False nor None: {answer!r}")
    return bool(answer)


def _asks(record: RunRecord, found: Found | None, now: StoreTime) -> bool:
    """Whether a runner should be executing it now, and none is known to."""
    if found is not None and found.action == "unknown":
        return False
    codes = _codes(found)
    if record.holder is not None:
        return bool(codes & _HOLDER_GONE)
    due = record.due_at is not None and record.due_at <= now
    return due or not record.has_task or "Q4" in codes


def _codes(found: Found | None) -> frozenset[str]:
    return frozenset() if found is None else frozenset(each.code for each in found.findings if each.trouble)


def _gone(record: RunRecord, found: Found | None, task_id: str) -> Found:
    """Whether Buoy found only that none of its own workers is alive."""
    if found is not None and found.action not in ("none", "report"):
        return found
    reason = f"its task {task_id} is not alive in the caller's queue"
    finding = Finding(code="Q1", trouble=True, reason=reason, remedy="requeue", evidence={"task": task_id})
    seen = found or Found.of(record)
    return replace(seen, action="resume", reason=finding.text(), findings=(finding, *seen.findings))
