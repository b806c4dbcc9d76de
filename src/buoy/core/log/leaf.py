"""Leaf: the smallest thing that a log has as started and ended, as far as it has come.

Absent on purpose: what changes it. `core.log.transitions` does.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.questions import Question

LeafKind: TypeAlias = Literal["step", "module", "ask", "signal", "timer", "child", "compensation", "group", "job"]
# held: a job that failed finally and may be reset; reset: it may be offered again.
LeafPhase: TypeAlias = Literal["open", "retrying", "completed", "failed", "cancelled", "held", "reset"]


class Leaf(msgspec.Struct, gc=False):
    """One leaf as the log has it so far."""

    id: LeafId
    kind: LeafKind
    name: str
    since: float
    phase: LeafPhase = "open"
    attempt: int = 1
    due_at: float | None = None
    question_id: str | None = None
    question: Question | None = None
    error: e.ErrorInfo | None = None
    child: e.ChildStarted | None = None
    started_seq: int = 0
    ended_seq: int = 0
    # Of a job: the number of the lot that it is in.
    lot: int = 0
