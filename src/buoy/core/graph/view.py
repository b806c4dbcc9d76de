"""Graph view: the leaves of a run as nodes, with their scopes, order, times, tries and branches, ready to be drawn.

Invariants: made from the log alone; what a branch hides is still there, marked as hidden. Two leaves are in order if
one ended before the other began and neither belongs to a concurrent part of which the other knows nothing.
Absent on purpose: any drawing. `text` and `svg` draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import BranchId, LeafId, RunId, leaf_scope
from buoy.core.log import events as e
from buoy.core.log.leaf import LeafKind
from buoy.core.log.lineage import visible
from buoy.core.log.renames import named_now
from buoy.core.log.state import fold
from buoy.core.log.transitions import compensation_leaf
from buoy.core.log.wording import error_text

Phase: TypeAlias = Literal["open", "retrying", "completed", "failed", "cancelled"]

# More than this is no picture any more; the rest is counted.
NODES_MAX = 400


class Node(msgspec.Struct):
    """One leaf on one branch."""

    leaf: LeafId
    kind: LeafKind
    name: str
    started_seq: int
    started_at: float
    branch: BranchId
    phase: Phase = "open"
    attempt: int = 1
    # How often it was started: more often than its attempt says if a crash cut it off.
    starts: int = 1
    ended_seq: int | None = None
    ended_at: float | None = None
    hidden: bool = False
    error: str | None = None
    # Of how many leaves of parts that are alike it is the picture, and how long the quickest and the slowest took.
    alike: int = 1
    shortest_s: float = 0.0
    longest_s: float = 0.0

    @property
    def scope(self) -> str:
        return leaf_scope(LeafId(self.leaf.removesuffix("!compensation")))

    @property
    def retries(self) -> int:
        return self.attempt - 1

    @property
    def repeats(self) -> int:
        """Starts that no failure explains: the process was gone."""
        return max(self.starts - self.attempt, 0)


class Branching(msgspec.Struct, frozen=True):
    """A branch, as far as a picture wants to know."""

    branch: BranchId
    parent: BranchId
    cause: str
    seq: int


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a picture. `links` are pairs of places in `nodes`; `left_out` counts the nodes beyond the limit."""

    run_id: RunId
    workflow: str
    status: str
    nodes: tuple[Node, ...]
    links: tuple[tuple[int, int], ...]
    branches: tuple[Branching, ...] = ()
    left_out: int = 0
    now: float = 0.0

    def duration_s(self, node: Node) -> float:
        """How long a node took, or has taken so far."""
        return max((self.now if node.ended_at is None else node.ended_at) - node.started_at, 0.0)


def graph_view(
    run_id: RunId,
    events: Sequence[e.Event],
    *,
    now: float,
    fold_nodes: Callable[[Sequence[Node]], list[Node]] | None = None,
) -> GraphView:
    """The picture of a log. `fold_nodes` makes one node of several that are alike (`core.graph.folding`)."""
    events = named_now(events)
    state = fold(run_id, events)
    nodes = _nodes(events, ended=state.ending_seq > 0)
    if fold_nodes is not None:
        nodes = fold_nodes(nodes)
    shown = nodes[:NODES_MAX]
    return GraphView(
        run_id=run_id,
        workflow="" if state.created is None else state.created.workflow,
        status=state.status or "unknown",
        nodes=tuple(shown),
        links=tuple(_order(shown)),
        branches=tuple(
            Branching(event.body.branch, event.body.parent, event.body.cause, event.seq)
            for event in events
            if isinstance(event.body, e.BranchCreated)
        ),
        left_out=len(nodes) - len(shown),
        now=now,
    )


class _Book:
    """Collects nodes while the log is read."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._latest: dict[LeafId, Node] = {}

    def begin(self, event: e.Event, leaf: LeafId, kind: LeafKind, name: str, attempt: int = 1) -> Node:
        known = self._latest.get(leaf)
        if known is not None and known.ended_seq is None and known.branch == event.branch:
            known.starts += 1
            known.attempt = max(known.attempt, attempt)
            known.phase = "open"
            return known
        node = Node(leaf, kind, name, event.seq, event.at, event.branch, attempt=attempt, starts=attempt)
        self._latest[leaf] = node
        self.nodes.append(node)
        return node

    def end(self, event: e.Event, leaf: LeafId, phase: Phase, error: e.ErrorInfo | None = None) -> None:
        node = self._latest.get(leaf)
        if node is None or node.ended_seq is not None:
            return
        node.phase, node.ended_seq, node.ended_at = phase, event.seq, event.at
        if error is not None:
            node.error = error_text(error)

    def retry(self, leaf: LeafId, error: e.ErrorInfo) -> None:
        node = self._latest.get(leaf)
        if node is not None:
            node.phase, node.error = "retrying", error_text(error)


def _nodes(events: Sequence[e.Event], *, ended: bool) -> list[Node]:
    book = _Book()
    for event in events:
        if not _begins(book, event):
            _ends(book, event)
    seen = {event.seq for event in visible(events)}
    for node in book.nodes:
        node.hidden = node.started_seq not in seen
        if node.ended_seq is None and (ended or node.hidden):
            # It was under way when the run ended or was branched: no code waits for it any more.
            node.phase = "cancelled"
    return book.nodes


def _begins(book: _Book, event: e.Event) -> bool:
    match event.body:
        case e.StepStarted() as body:
            book.begin(event, body.leaf, "step", body.name, body.attempt)
        case e.JobOffered() as body:
            book.begin(event, body.leaf, "job", body.name, body.attempt)
        case e.ChildStarted(workflow=e.LOT_WORKFLOW):
            return True  # it stands for the jobs in it
        case e.ModuleStarted() as body:
            book.begin(event, body.leaf, "module", body.module, body.attempt)
        case e.InteractionRequested() as body:
            book.begin(event, body.leaf, "ask", body.question.title)
        case e.SignalWaited() as body:
            book.begin(event, body.leaf, "signal", body.name)
        case e.TimerStarted() as body:
            book.begin(event, body.leaf, "timer", "timer")
        case e.ChildStarted() as body:
            book.begin(event, body.leaf, "child", body.workflow)
            if body.detach:
                book.end(event, body.leaf, "completed")
        case e.CompensationStarted() as body:
            book.begin(event, compensation_leaf(body.leaf), "compensation", body.leaf, body.attempt)
        case _:
            return False
    return True


def _ends(book: _Book, event: e.Event) -> None:
    match event.body:
        case e.StepFailed() | e.ModuleFailed() as body:
            book.end(event, body.leaf, "failed", body.error)
        case e.JobHeld() as body:
            book.end(event, body.leaf, "failed", body.error)
        case e.RetryScheduled() as body:
            book.retry(body.leaf, body.error)
        case e.CompensationRetryScheduled() as body:
            book.retry(compensation_leaf(body.leaf), body.error)
        case e.ChildFinished() as body:
            book.end(event, body.leaf, "completed" if body.status == "completed" else "failed", body.error)
        case e.LeafCancelled() as body:
            book.end(event, body.leaf, "cancelled")
        case e.CompensationCompleted() as body:
            book.end(event, compensation_leaf(body.leaf), "completed")
        case e.CompensationFailed() as body:
            book.end(event, compensation_leaf(body.leaf), "failed", body.error)
        case e.StepCompleted() | e.ModuleCompleted() | e.InteractionResponse() as body:
            book.end(event, body.leaf, "completed")
        case e.SignalReceived() | e.TimerFired() as body:
            book.end(event, body.leaf, "completed")
        case _:
            return


def _order(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """Each node's immediate predecessors. Quadratic, which the limit on nodes bounds."""
    found: list[tuple[int, int]] = []
    for place, node in enumerate(nodes):
        before = [
            (other.ended_seq, index)
            for index, other in enumerate(nodes[:place])
            if other.ended_seq is not None and other.ended_seq < node.started_seq and _related(other, node)
        ]
        chosen: list[Node] = []
        for ended_seq, index in sorted(before, reverse=True):
            other = nodes[index]
            if not any(ended_seq < later.started_seq and _related(other, later) for later in chosen):
                chosen.append(other)
                found.append((index, place))
    return found


def _related(one: Node, other: Node) -> bool:
    """Whether both are on the same branch, and one's part is the other's or contains it."""
    if one.hidden != other.hidden or (one.hidden and one.branch != other.branch):
        return False
    mine, theirs = one.scope.split("."), other.scope.split(".")
    if not one.scope or not other.scope:
        return True
    return mine[: len(theirs)] == theirs or theirs[: len(mine)] == mine
