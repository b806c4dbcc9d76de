"""The witness: what really happened, kept outside of the store. Invariants compare it with what the store says.

Invariant: it only listens. Nothing that it knows goes back to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from simulator.reading import UNDO, old_name, pause_of, shown, times_redone
from simulator.storage import Storage


class Violation(msgspec.Struct, frozen=True):
    """A promise that was broken."""

    rule: str
    text: str


class Acknowledged(msgspec.Struct, frozen=True):
    """A commit that the store called done."""

    run_id: str
    nonce: str | None
    first_seq: int
    last_seq: int
    writer: str


class Sent(msgspec.Struct, frozen=True):
    """A message that the store called sent."""

    run_id: str
    number: int
    dedupe: str
    kind: str
    duplicate: bool = False
    by: str = ""


class Touched(msgspec.Struct, frozen=True):
    """A process changed what belongs to a run, without an event in its log."""

    run_id: str
    by: str
    how: str


class BodyEvent(msgspec.Struct, frozen=True):
    """A step's body began or ended in a process."""

    at: float
    what: Literal["start", "end"]
    run_id: str
    leaf: str
    attempt: int
    key: str
    process: str
    # The process had been declared gone by then: it is fenced by the log, and cannot know it yet.
    gone: bool = False
    # How often this leaf had been called back by then, by people or by its compensation: each time is a new effect.
    redone: int = 0


class Holders:
    """Who has the task of each run. Known only where it is certain: who may have let it go holds nothing."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._moving: dict[str, int] = {}
        # How often any task was given away so far, and at which of these each one was the last time.
        self.moves = 0
        self._moved: dict[str, int] = {}

    def holds(self, run_id: str, runner: str) -> None:
        if not self._moving.get(run_id):
            self._names[run_id] = runner

    def takes(self, run_id: str, runner: str, alive: set[str], since: int = 0) -> str | None:
        """A process gets the task. Returns the living process that has it already, if there is one.

        `since`: the moves there had been when it asked. One that came since then may have taken the task away again:
        a burial, or a request that a client recorded itself. Then the answer is only late, and the log fences.
        """
        before = self._names.get(run_id)
        if self._moved.get(run_id, 0) > since:
            return None
        self.holds(run_id, runner)
        return before if before in alive and before != runner else None

    @contextmanager
    def moving(self, *run_ids: str) -> Iterator[None]:
        """A process gives these tasks away. A process that takes one before that is over may lose it by that."""
        for run_id in run_ids:
            self._names.pop(run_id, None)
            self._moving[run_id] = self._moving.get(run_id, 0) + 1
        try:
            yield
        finally:
            self.moves += 1
            for run_id in run_ids:
                self._moving[run_id] -= 1
                self._moved[run_id] = self.moves

    def forget(self, runner: str) -> None:
        self._names = {run_id: name for run_id, name in self._names.items() if name != runner}


class Witness:
    """All that was seen in one seed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.commits: list[Acknowledged] = []
        self.sends: list[Sent] = []
        self.touches: list[Touched] = []
        self.bodies: list[BodyEvent] = []
        self.holders = Holders()
        self.starts: dict[str, str] = {}
        # How often each of those who speak to a run asked it to go back; asking again is the same request.
        self.backs: dict[str, dict[str, int]] = {}
        # Of each run the branches that people got, and whether those were to keep the answers.
        self.keeps: dict[str, dict[int, bool]] = {}
        self.writers: dict[str, str] = {}
        self.violations: list[Violation] = []
        self._logs: dict[str, list[e.Event]] = {}
        self._running: dict[tuple[str, str], list[BodyEvent]] = {}

    def broken(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))

    def asks_back(self, run_id: str, by: str) -> None:
        asked = self.backs.setdefault(run_id, {})
        asked[by] = asked.get(by, 0) + 1

    # ---- commits

    def committed(self, commit: Acknowledged, *, gives_back: bool = False, buried: Sequence[e.Event] = ()) -> None:
        """Judged at once: what is called done must be there now; and who gives a run back executes nothing of it.

        `buried`: the log of a run that was purged. An answer may be slow, and come after that.
        """
        self.commits.append(commit)
        was_there = any((event.seq, event.nonce) == (commit.first_seq, commit.nonce) for event in buried)
        if not was_there and not self._storage.holds(RunId(commit.run_id), commit.first_seq, commit.nonce):
            text = f"{commit.run_id}: events {commit.first_seq} to {commit.last_seq} of {commit.writer} are not there"
            self.broken("acknowledged before it was durable", text)
        for (run_id, leaf), running in self._running.items():
            if gives_back and run_id == commit.run_id and any(each.process == commit.writer for each in running):
                text = f"{run_id}: {commit.writer} gave it back and still executes {leaf}"
                self.broken("what executes is not given back", text)

    # ---- bodies

    def body_started(self, event: BodyEvent, alive: set[str]) -> None:
        """Judged at once: what is durable now decides whether this body may run."""
        log = self._durable(event.run_id)
        event = msgspec.structs.replace(event, redone=times_redone(log, event.leaf.removesuffix(UNDO)))
        self.bodies.append(event)
        seen = shown(log)
        who = f"{event.run_id} {event.leaf} attempt {event.attempt} in {event.process}"
        if not any(_begins(each.body, event) for each in (log if event.gone else seen)):
            self.broken("effect before commit", f"{who}: its body runs, but no durable event says so")
        ended = still_ended(log, event)
        if ended is not None and not event.gone and not self._unanswered(event, ended):
            self.broken("executed again", f"{who}: its body runs, but event {ended.seq} is {ended.type}")
        pause = pause_of(log)
        if pause is not None and not event.gone:
            self.broken("a paused run starts nothing", f"{who}: its body runs, but event {pause.seq} paused the run")
        self._judge_company(event)
        running = self._running.setdefault((event.run_id, old_name(event.leaf)), [])
        others = [each for each in running if each.process in alive and not event.gone]
        if others:
            self.broken("executed twice at once", f"{who}: its body already runs in {others[0].process}")
        running.append(event)

    def _judge_company(self, event: BodyEvent) -> None:
        """A run that is driven alone, since it ended its processes before, executes beside no other that was taken."""
        beside = {
            run_id: None
            for (run_id, _), running in self._running.items()
            if run_id != event.run_id and any(each.process == event.process for each in running)
        }
        mine = is_suspect(self._durable(event.run_id))
        for other in beside if not event.gone else ():
            theirs = is_suspect(self._durable(other))
            taken = other if mine else event.run_id
            if (mine or theirs) and claim_of(self._durable(taken)) not in (None, "created"):
                text = f"{event.process} executes {event.run_id} beside {other}, and one of them is to be alone"
                self.broken("a suspect is driven alone", text)

    def _unanswered(self, event: BodyEvent, end: e.Event) -> bool:
        """A process that gives a leaf up may start its body before it hears that this is durable. No more than that."""
        if not isinstance(end.body, e.LeafCancelled):
            return False
        log = self._logs[event.run_id]
        nonce = next(each.nonce for each in reversed(log[: end.seq]) if each.nonce is not None)
        told = any(commit.nonce == nonce for commit in self.commits)
        return self.writers.get(nonce) == event.process and not told

    def body_ended(self, event: BodyEvent) -> None:
        self.bodies.append(event)
        running = self._running.get((event.run_id, old_name(event.leaf)), [])
        for place, each in enumerate(running):
            if each.process == event.process and each.attempt == event.attempt:
                del running[place]
                break

    def _durable(self, run_id: str) -> list[e.Event]:
        log = self._logs.setdefault(run_id, [])
        log.extend(self._storage.log(RunId(run_id), log[-1].seq if log else 0))
        return log


def is_suspect(log: list[e.Event]) -> bool:
    """Whether the run is to be driven alone: it was claimed so, and has neither got on nor rested since."""
    alone = False
    for body in (event.body for event in log):
        if isinstance(body, e.Claimed) and body.cause not in ("requested", "recovered"):
            alone = body.evidence.get("solo") is True
        elif e.leaf_of(body) is not None and not isinstance(body, e.StepStarted | e.ModuleStarted):
            alone = False
    return alone


def claim_of(log: list[e.Event]) -> str | None:
    """The cause of the last claim that drives the run."""
    causes = [event.body.cause for event in log if isinstance(event.body, e.Claimed)]
    drives = [cause for cause in causes if cause not in ("requested", "recovered")]
    return drives[-1] if drives else None


def still_ended(log: list[e.Event], event: BodyEvent) -> e.Event | None:
    """The end that this leaf has had, if no branch took it back. Computed here independently of the engine: each branch
    continues from the one before it.
    """
    end: e.Event | None = None
    undo_began, mine = False, old_name(event.leaf.removesuffix(UNDO))
    for each in log:
        body = each.body
        if _ends(body, event):
            end = each
        elif isinstance(body, e.CompensationStarted) and old_name(body.leaf) == mine:
            undo_began = True
        elif isinstance(body, e.BranchCreated):
            dropped, kept = ({old_name(leaf) for leaf in leaves} for leaves in (body.dropped, body.kept))
            within = end is not None and (end.seq <= body.cutoff_seq or mine in kept)
            if mine in dropped or undo_began or not within:
                end, undo_began = None, False
    return end


def _begins(body: e.Body, event: BodyEvent) -> bool:
    """Whether that durable event lets this body begin."""
    if event.leaf.endswith(UNDO):
        mine = (old_name(event.leaf.removesuffix(UNDO)), event.attempt)
        return isinstance(body, e.CompensationStarted) and (old_name(body.leaf), body.attempt) == mine
    starts = e.StepStarted | e.ModuleStarted
    return isinstance(body, starts) and (old_name(body.leaf), body.attempt) == (old_name(event.leaf), event.attempt)


def _ends(body: e.Body, event: BodyEvent) -> bool:
    if event.leaf.endswith(UNDO):
        ends = e.CompensationCompleted | e.CompensationFailed
        return isinstance(body, ends) and old_name(body.leaf) == old_name(event.leaf.removesuffix(UNDO))
    kinds = e.StepCompleted | e.StepFailed | e.ModuleCompleted | e.ModuleFailed | e.LeafCancelled
    return isinstance(body, kinds) and old_name(body.leaf) == old_name(event.leaf)
