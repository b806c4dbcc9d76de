"""State: what a run's log amounts to. `fold(run_id, events)` reads a whole log, `State.apply` adds one event.
What each event does to the state is in `core.log.transitions`.

Invariants: leaf events count only on the current branch's lineage; run-level events count over the whole log; a message
number is consumed once and remembered for the run's life. Folding never raises on odd orders: `anomalies` names them.
Absent on purpose: the results of leaves. A replay takes them from the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from buoy.core.ids import ROOT_BRANCH, BranchId, LeafId, RunId, child_run_id, effect_key
from buoy.core.log import events as e
from buoy.core.log.events import StepCompleted, StepStarted
from buoy.core.log.leaf import Leaf, LeafPhase
from buoy.core.log.lifecycle import MOVES, TERMINAL, Status, allowed
from buoy.core.log.lineage import is_plain, visible
from buoy.core.log.pause import Pause
from buoy.core.log.renames import NO_RENAMES, Names, read_names

ANOMALIES_MAX = 20

# Looked up once: asking an enum for a member costs more than the rest of `settle`, which every event does.
RUNNING, _PAUSED, _PENDING, _INTERRUPTED = Status.RUNNING, Status.PAUSED, Status.PENDING, Status.INTERRUPTED
# What an open leaf means for the status while it executes nothing; every other kind rests.
_MEANINGS: dict[str, str] = {"ask": "ask", "signal": "signal", "compensation": "compensation", "group": "group"}
_BODIES = frozenset({"step", "module"})

# Shared by all states that have consumed nothing, which are most.
_NONE: frozenset[int] = frozenset()

# Filled by `core.log.transitions`, one handler for each payload. True: the status is what it has to be already.
Handler: TypeAlias = Callable[["State", e.Event, Any], bool | None]
HANDLERS: dict[type[e.Payload], Handler] = {}


class State(msgspec.Struct):
    """A folded log. Mutable: the owner of a run adds each event that it appends."""

    run_id: RunId
    status: Status | None = None
    created: e.WorkflowCreated | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    head_seq: int = 0
    branch: BranchId = ROOT_BRANCH
    branch_count: int = 0
    version: str = ""
    leaves: dict[LeafId, Leaf] = {}
    # The leaves that did not end, in order of their start: what the status is made of.
    open: dict[LeafId, Leaf] = {}
    # Of them, the steps that execute; and how many there are of each other meaning for the status.
    active: int = 0
    tally: dict[str, int] = {}
    ended: dict[str, int] = {}
    consumed: set[int] | frozenset[int] = _NONE
    epochs: dict[LeafId, int] = {}
    names: Names = NO_RENAMES
    owner: str | None = None
    claims: int = 0
    # Of them, those after the death of a runner and those of a recovery.
    takeovers: int = 0
    pause: Pause | None = None
    # Versions of the code that do not fit the log, if they were tried since the run last changed.
    misfits: tuple[str, ...] = ()
    interrupted: bool = False
    cancel: e.CancelRequested | None = None
    error: e.ErrorInfo | None = None
    # The leaf, or the child, whose failure ended the run; neither: its code failed by itself.
    cause_leaf: LeafId | None = None
    cause_child: RunId | None = None
    ending_seq: int = 0
    moved_to: str | None = None
    recoveries: int = 0
    # Lots that were ever offered, on any branch; the open ones by queue; jobs that failed finally.
    lots: int = 0
    open_lots: dict[str, int] = {}
    held: int = 0
    # Of its cluster: the allocations at the scheduler that have not ended, and the number of the last change.
    allocations: frozenset[str] = frozenset()
    cluster_number: int = 0
    # Jobs whose limits were changed, and jobs that are not to run: disabled, cancelled, or dependency.
    limits: dict[LeafId, e.JobLimits] = {}
    stopped: dict[LeafId, str] = {}
    # About the bytes that steps have published, on any branch.
    published: int = 0
    # Children that only a branch left behind has started, and whose end it did not see.
    hidden_children: dict[RunId, e.ChildStarted] = {}
    anomalies: list[str] = []

    def apply(self, event: e.Event) -> None:
        """Adds the next event of the log. After a branch or a rename only a new `fold` knows."""
        self.apply_all((event,))

    def apply_all(self, events: Sequence[e.Event]) -> None:
        """Adds the next events. Most of a long log are steps that start once and end well: they are added here as their
        transitions would, without a call. A fold then takes 0.6 to 0.8 of the time."""
        leaves, open_now, ended, head = self.leaves, self.open, self.ended, self.head_seq
        for event in events:
            body: Any = event.body
            kind, seq = type(body), event.seq
            if seq != head + 1:
                self.odd(f"event {seq} follows event {head}")
            head = seq
            if self.status is RUNNING:
                if kind is StepStarted and body.leaf not in leaves and not body.group:
                    leaves[body.leaf] = open_now[body.leaf] = Leaf(
                        body.leaf, "step", body.name, event.at, "open", body.attempt, None, None, None, None, None, seq
                    )
                    self.active += 1
                    continue
                if kind is StepCompleted and body.message is None and self.active == len(open_now):
                    leaf = open_now.get(body.leaf)
                    if leaf is not None and leaf.kind == "step" and leaf.error is None:
                        del open_now[body.leaf]
                        self.active -= 1
                        leaf.phase = "completed"
                        leaf.ended_seq = seq
                        ended["completed"] = ended.get("completed", 0) + 1
                        continue
            if self.status not in MOVES[kind] and not allowed(self.status, kind):
                self.odd(f"event {seq}: {event.type} while {self.status or 'not created'}")
            if not HANDLERS[kind](self, event, body):
                self.settle()
        if events:
            self.head_seq, self.updated_at = head, events[-1].at

    def append(self, body: e.Body, at: float, nonce: str | None) -> e.Event:
        """Adds what happens now, which must be allowed, and gives it as the log's next event."""
        kind, seq = type(body), self.head_seq + 1
        event = e.Event(seq, at, body, self.branch, 1, nonce)
        self.head_seq = seq
        self.updated_at = at
        if not HANDLERS[kind](self, event, body):
            self.settle()
        return event

    def pass_over(self, event: e.Event) -> None:
        """Adds an event that the current branch does not see. Only what it settled for the whole run counts."""
        self._advance(event)
        if isinstance(event.body, e.ENDINGS):
            # Going on after an end is a new start: neither an old pause nor a cancel that was met or came too late
            # may stop it again.
            self.pause = None
            self.cancel = None
            self.settle()
        elif isinstance(event.body, e.CompensationStarted) and event.body.attempt == 1:
            # An undone step needs a new key: the old one would return the old, undone effect.
            self.raise_epoch(event.body.leaf)
        elif isinstance(event.body, e.ChildStarted):
            self.hidden_children[event.body.child] = event.body
            self.lots += event.body.workflow == e.LOT_WORKFLOW
        elif isinstance(event.body, e.ChildFinished):
            self.hidden_children.pop(event.body.child, None)

    def _advance(self, event: e.Event) -> None:
        if event.seq != self.head_seq + 1:
            self.odd(f"event {event.seq} follows event {self.head_seq}")
        self.head_seq = event.seq
        self.updated_at = event.at

    @property
    def sees_all(self) -> bool:
        """Whether its log is seen as it was written: no branch hides, and no rename changes, any of its events."""
        return self.branch_count == 0 and self.names is NO_RENAMES

    @property
    def wake_at(self) -> float | None:
        """The earliest time at which something is due, or None if only a message can wake the run."""
        earliest: float | None = None
        for leaf in self.open.values():
            if leaf.due_at is not None and (earliest is None or leaf.due_at < earliest):
                earliest = leaf.due_at
        return earliest

    def questions(self) -> list[Leaf]:
        """The questions that wait for an answer."""
        return [leaf for leaf in self.open.values() if leaf.kind == "ask"]

    def odd(self, text: str) -> None:
        """Remembers something that a sound log does not hold."""
        if len(self.anomalies) < ANOMALIES_MAX:
            self.anomalies.append(text)

    def settle(self) -> None:
        """Derives the status from what is open, unless something run-wide decides it."""
        if self.status in TERMINAL or self.created is None:
            return
        if self.pause is not None:
            self.status = _PAUSED
        elif self.interrupted:
            self.status = _INTERRUPTED
        elif self.owner is None:
            self.status = _PENDING
        elif self.active or not self.open:
            self.status = RUNNING
        else:
            self.status = self._waiting()

    def _waiting(self) -> Status:
        """While something is open, and no step executes."""
        open_now = self.tally
        if open_now.get("compensation"):
            return Status.COMPENSATING
        if open_now.get("ask"):
            return Status.AWAITING_INPUT
        if open_now.get("signal"):
            return Status.WAITING_SIGNAL
        return Status.WAITING if open_now.get("rest") else RUNNING

    def set_phase(self, leaf: Leaf, phase: LeafPhase) -> None:
        """Moves an open leaf on."""
        self._count(leaf, -1)
        self.held += (phase == "held") - (leaf.phase == "held")
        leaf.phase = phase
        self._count(leaf, 1)

    def _count(self, leaf: Leaf, by: int) -> None:
        """Keeps count of what the open leaves mean for the status. A group by itself means nothing."""
        if leaf.kind in _BODIES and leaf.phase == "open":
            self.active += by
        else:
            meaning = _MEANINGS.get(leaf.kind, "rest")
            self.tally[meaning] = self.tally.get(meaning, 0) + by

    def begin(self, leaf: Leaf) -> None:
        """A leaf is under way from here."""
        if leaf.id in self.open:
            self.odd(f"event {leaf.started_seq}: {leaf.id} begins, but is open already")
            return
        if leaf.id in self.leaves and self.leaves[leaf.id].phase != "reset":
            self.odd(f"event {leaf.started_seq}: {leaf.id} begins again, but is {self.leaves[leaf.id].phase}")
        self.leaves[leaf.id] = self.open[leaf.id] = leaf
        self._count(leaf, 1)

    def end(self, event: e.Event, leaf_id: LeafId, phase: LeafPhase, error: e.ErrorInfo | None = None) -> None:
        """A leaf has its outcome."""
        leaf = self.open.pop(leaf_id, None)
        if leaf is None:
            self.odd(f"event {event.seq}: {event.type} of {leaf_id}, which is not open")
            return
        if leaf.kind == "step" and leaf.phase == "open":
            self.active -= 1  # most leaves end so, and then the rest is out of the question
        else:
            self._count(leaf, -1)
            self.held -= leaf.phase == "held"
            if leaf.child is not None and leaf.child.workflow == e.LOT_WORKFLOW:
                self._lot_over(leaf.child.queue)
        leaf.phase = phase
        leaf.ended_seq = event.seq
        leaf.error = error
        leaf.due_at = None
        self.ended[phase] = self.ended.get(phase, 0) + 1

    def _lot_over(self, queue: str) -> None:
        left = self.open_lots.pop(queue, 1) - 1
        if left > 0:
            self.open_lots[queue] = left

    def let_go(self, leaf_id: LeafId) -> None:
        """A job that is held is open no longer: it is to run again, or never."""
        leaf = self.open.get(leaf_id)
        if leaf is not None and leaf.phase == "held":
            del self.open[leaf_id]
            self._count(leaf, -1)
            self.held -= 1
            leaf.phase = "reset"

    def consume(self, event: e.Event, message: int | None) -> None:
        """A message has had its effect; it never has another."""
        if message is None:
            return
        if message in self.consumed:
            self.odd(f"event {event.seq}: message {message} is consumed twice")
        if isinstance(self.consumed, frozenset):
            self.consumed = set()
        self.consumed.add(message)

    def key(self, leaf: LeafId) -> str:
        """The idempotency key and question id of a leaf's next execution."""
        epoch = self.epochs.get(leaf, 0) if self.epochs else 0
        return effect_key(self.run_id, leaf if self.names is NO_RENAMES else self.names.identity(leaf), epoch)

    def child_id(self, leaf: LeafId) -> RunId:
        """The run that a leaf's next execution as a child is."""
        return child_run_id(self.run_id, self.names.identity(leaf), self.epochs.get(leaf, 0))

    def left_children(self) -> list[e.ChildStarted]:
        """The children that a branch has left behind and that the current one has not started again."""
        if not self.hidden_children:
            return []
        here = {leaf.child.child for leaf in self.leaves.values() if leaf.child is not None}
        return [started for child, started in self.hidden_children.items() if child not in here]

    def raise_epoch(self, leaf: LeafId) -> None:
        """The leaf's next execution is a new effect, under a new key."""
        self.epochs[leaf] = self.epochs.get(leaf, 0) + 1


def fold(run_id: RunId, events: Sequence[e.Event]) -> State:
    """Folds a whole log into its state. Raises `CorruptLog` only if its branches have no sound order."""
    if is_plain(events):
        state = State(run_id=run_id)
        state.apply_all(events)
        return state
    events, names = read_names(events)
    state = State(run_id=run_id, names=names)
    seen = visible(events)
    shown = {event.seq for event in seen}
    for event in events:
        if event.seq in shown:
            state.apply(event)
        else:
            state.pass_over(event)
    return state
