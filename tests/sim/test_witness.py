"""What must be judged at the moment itself: whether a body may run now."""

from __future__ import annotations

import msgspec

from buoy.core import events as e
from buoy.core.ids import LeafId, RunId
from buoy.ports import Clock, Message, Store
from buoy.testing.sim.faults import Gate
from buoy.testing.sim.witness import BodyEvent, Witness

LEAF = LeafId("work#1")


class _Shelf:
    """A storage that has just this log."""

    def __init__(self, *bodies: e.Body) -> None:
        self._log = [e.Event(number, 0.0, body) for number, body in enumerate(bodies, 1)]

    def open(self, gate: Gate, clock: Clock) -> Store:
        raise NotImplementedError

    def log(self, run_id: RunId, after: int = 0) -> list[e.Event]:
        return self._log[after:]

    def inbox(self, run_id: RunId) -> list[Message]:
        return []

    def close(self) -> None: ...


CREATED = e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}"))
STARTED = e.StepStarted(leaf=LEAF, name="work")


def _start(process: str = "w1", attempt: int = 1, *, gone: bool = False) -> BodyEvent:
    return BodyEvent(1.0, "start", "run-1", LEAF, attempt, "key", process, gone)


def _rules(witness: Witness) -> list[str]:
    return [violation.rule for violation in witness.violations]


def test_a_body_after_its_durable_start_is_right() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == []


def test_a_body_before_its_durable_start_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == ["effect before commit"]


def test_a_body_of_an_attempt_that_is_not_durable_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start(attempt=2), {"w1"})
    assert _rules(witness) == ["effect before commit"]


def test_a_body_after_its_durable_end_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF)))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == ["executed again"]


def test_a_body_in_a_process_that_was_declared_gone_cannot_be_held_back() -> None:
    witness = Witness(_Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF)))
    witness.body_started(_start(gone=True), set())
    assert _rules(witness) == []


def test_a_body_in_two_living_processes_at_once_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start("w1"), {"w1", "w2"})
    witness.body_started(_start("w2"), {"w1", "w2"})
    assert _rules(witness) == ["executed twice at once"]


def test_a_body_after_the_death_of_its_first_process_is_right() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start("w1"), {"w1", "w2"})
    witness.body_started(_start("w2"), {"w2"})
    assert _rules(witness) == []
