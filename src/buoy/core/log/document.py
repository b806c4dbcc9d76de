"""Document: the cached summary of a run, made from its folded log and nothing else.

Invariants: `document(state)` of the same log is always the same document. Its lists are cut at a limit and counted
beyond it, since it is written again at every commit. A document of an earlier form stays valid until the next commit:
it says nothing about the fields that came later (`core.diagnosis.document_drift`). Its times are the run's, as those of
events.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.limits import DOCUMENT_LIST_MAX
from buoy.core.log.events import ErrorInfo, Parent
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.pause import Pause
from buoy.core.log.questions import Question
from buoy.core.log.state import State
from buoy.errors import CorruptLog

# The form of documents that this code writes. 1: a pause names neither its message, its end nor what code was tried.
# Before 4: nothing about jobs. Before 5: nothing about takeovers. Before 6: nothing about allocations.
DOCUMENT_VERSION = 6
_TAKEOVERS_SINCE = 5


class OpenLeaf(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A leaf that has no outcome yet: under way, or waited for."""

    leaf: LeafId
    kind: str
    name: str
    since: float
    attempt: int = 1
    retrying: bool = False
    due_at: float | None = None
    question_id: str | None = None
    question: Question | None = None
    error: ErrorInfo | None = None


class Document(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What lists, pages and sweeps read without reading the log."""

    run_id: RunId
    workflow: str
    status: Status
    head_seq: int
    created_at: float
    updated_at: float
    version: str = ""
    branch: BranchId = BranchId(0)
    queue: str = "default"
    policy: str = "resume"
    stack: str | None = None
    env: str | None = None
    parent: Parent | None = None
    owner: str | None = None
    claims: int = 0
    recoveries: int = 0
    open: tuple[OpenLeaf, ...] = ()
    open_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    wake_at: float | None = None
    pause: Pause | None = None
    cancel_requested: bool = False
    error: ErrorInfo | None = None
    # Messages that the log has consumed. Documents before version 3 lack it.
    consumed_count: int = 0
    v: int = 1
    # The name of the store that has the run now.
    moved_to: str | None = None
    placement: str = "local"
    # Of a batch run: the queues on which it offers lots now, with their number, and the jobs that failed finally.
    lots: dict[str, int] = {}
    held_count: int = 0
    # Claims after the death of a runner, and those of recoveries.
    takeovers: int = 0
    # Of a batch run: its allocations at the scheduler that have not ended, and the number of the last change there.
    allocations: int = 0
    cluster_number: int = 0

    @property
    def may_have_recovered(self) -> bool:
        """False: the log has no recovery. A document of an earlier form says only whether it was claimed again."""
        again = self.takeovers if self.v >= _TAKEOVERS_SINCE else self.claims > 1
        return bool(self.recoveries or again)

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


def document(state: State, open_max: int = DOCUMENT_LIST_MAX) -> Document:
    """The document of a folded log; `open_max` for one that is not stored."""
    created, ended = state.created, state.ended
    if created is None or state.status is None:
        raise CorruptLog(f"the log of {state.run_id} does not begin with workflow_created")
    shown, wake_at = _open_leaves(state, open_max) if state.open else ((), None)
    # By position, in the order of the fields: every commit calls this.
    return Document(
        state.run_id,
        created.workflow,
        state.status,
        state.head_seq,
        state.created_at,
        state.updated_at,
        state.version,
        state.branch,
        created.queue,
        created.policy,
        created.stack,
        created.env,
        created.parent,
        state.owner,
        state.claims,
        state.recoveries,
        shown,
        len(state.open),
        ended.get("completed", 0),
        ended.get("failed", 0),
        wake_at,
        state.pause,
        state.cancel is not None,
        state.error,
        len(state.consumed),
        DOCUMENT_VERSION,
        state.moved_to,
        created.placement,
        dict(state.open_lots) if state.open_lots else {},
        state.held,
        state.takeovers,
        len(state.allocations),
        state.cluster_number,
    )


def _open_leaves(state: State, open_max: int) -> tuple[tuple[OpenLeaf, ...], float | None]:
    """The first ones, and the earliest time at which any of them is due (`State.wake_at`)."""
    shown: list[OpenLeaf] = []
    earliest: float | None = None
    left = open_max
    for leaf in state.open.values():
        due_at = leaf.due_at
        if due_at is not None and (earliest is None or due_at < earliest):
            earliest = due_at
        if left > 0:
            left -= 1
            shown.append(
                OpenLeaf(
                    leaf.id,
                    leaf.kind,
                    leaf.name,
                    leaf.since,
                    leaf.attempt,
                    leaf.phase == "retrying",
                    due_at,
                    leaf.question_id,
                    leaf.question,
                    leaf.error,
                )
            )
    return tuple(shown), earliest
