"""Found: one run in trouble, as a scan reports it, and how it is handed to the caller's own function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import RunId
from buoy.ports.records import RunRecord
from buoy.recovery.recover import Recovery


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One run in trouble. `action`: what a recovery would do; `error`: why it could not be judged."""

    run_id: RunId
    workflow: str
    status: str
    action: str
    reason: str | None = None
    error: str | None = None
    note: str | None = None
    findings: tuple[Finding, ...] = ()
    # The task that should drive it, and when the run moved last; None where the run could not be read.
    task_id: str | None = None
    updated_at: float | None = None

    @classmethod
    def of(cls, record: RunRecord, seen: Recovery | None = None) -> Found:
        """A run, with what a look at it said."""
        doc = record.document
        known = seen or Recovery(run_id=doc.run_id)
        return cls(
            run_id=doc.run_id,
            workflow=doc.workflow,
            status=doc.status,
            action=known.action,
            reason=known.reason,
            error=known.error,
            note=known.note,
            findings=known.findings,
            task_id=record.envelope.orchestrator_task_id,
            updated_at=doc.updated_at,
        )

    @classmethod
    def unread(cls, seen: Recovery) -> Found:
        """A run whose summary could not be read."""
        return cls(run_id=seen.run_id, workflow="", status="", action="unknown", error=seen.error)


# The caller's own function. Its result is awaited if possible, and otherwise ignored.
Report: TypeAlias = Callable[[Found], "Awaitable[object] | object"]


async def hand_over(report: Report, found: Found) -> str | None:
    """Gives a run to the caller's function. One line if that fails: the other runs get theirs anyway."""
    try:
        done = report(found)
        if inspect.isawaitable(done):
            await done
    except Exception as error:  # noqa: BLE001 - the caller's code; reported in the result of the scan
        return f"{found.run_id}: the report function failed: {type(error).__name__}: {error}"
    return None
