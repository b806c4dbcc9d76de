"""The witness: what really happened, kept outside of the store. Invariants compare it with what the store says.

Invariant: it only listens. Nothing that it knows goes back to the engine.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from buoy.core import events as e
from buoy.core.ids import RunId
from buoy.testing.sim.storage import Storage


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


class Witness:
    """All that was seen in one seed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.commits: list[Acknowledged] = []
        self.sends: list[Sent] = []
        self.bodies: list[BodyEvent] = []
        self.starts: dict[str, str] = {}
        self.writers: dict[str, str] = {}
        self.violations: list[Violation] = []
        self._logs: dict[str, list[e.Event]] = {}
        self._running: dict[tuple[str, str], list[BodyEvent]] = {}

    def broken(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))

    # ---- bodies

    def body_started(self, event: BodyEvent, alive: set[str]) -> None:
        """Judged at once: what is durable now decides whether this body may run."""
        self.bodies.append(event)
        log = self._durable(event.run_id)
        who = f"{event.run_id} {event.leaf} attempt {event.attempt} in {event.process}"
        if not any(_begins(each.body, event) for each in log):
            self.broken("effect before commit", f"{who}: its body runs, but no durable event says so")
        ended = [each for each in log if _ends(each.body, event)]
        if ended and not event.gone:
            self.broken("executed again", f"{who}: its body runs, but event {ended[0].seq} is {ended[0].type}")
        running = self._running.setdefault((event.run_id, event.leaf), [])
        others = [each for each in running if each.process in alive and not event.gone]
        if others:
            self.broken("executed twice at once", f"{who}: its body already runs in {others[0].process}")
        running.append(event)

    def body_ended(self, event: BodyEvent) -> None:
        self.bodies.append(event)
        running = self._running.get((event.run_id, event.leaf), [])
        for place, each in enumerate(running):
            if each.process == event.process and each.attempt == event.attempt:
                del running[place]
                break

    def _durable(self, run_id: str) -> list[e.Event]:
        log = self._logs.setdefault(run_id, [])
        log.extend(self._storage.log(RunId(run_id), log[-1].seq if log else 0))
        return log


_UNDO = "!compensation"


def _begins(body: e.Body, event: BodyEvent) -> bool:
    """Whether that durable event lets this body begin. The attempts of a compensation are not recorded one by one."""
    if event.leaf.endswith(_UNDO):
        return isinstance(body, e.CompensationStarted) and body.leaf == event.leaf.removesuffix(_UNDO)
    return isinstance(body, e.StepStarted) and (body.leaf, body.attempt) == (event.leaf, event.attempt)


def _ends(body: e.Body, event: BodyEvent) -> bool:
    if event.leaf.endswith(_UNDO):
        ends = e.CompensationCompleted | e.CompensationFailed
        return isinstance(body, ends) and body.leaf == event.leaf.removesuffix(_UNDO)
    return isinstance(body, e.StepCompleted | e.StepFailed | e.LeafCancelled) and body.leaf == event.leaf
