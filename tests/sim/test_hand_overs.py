"""What a process writes when it lets a run rest is judged at once: documents, and the times at which runs are due."""

from __future__ import annotations

import msgspec
import pytest
from simulator.hand_overs import asleep, wrong_document, wrong_due

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.ports.records import Released

SOON = e.TimerStarted(leaf=LeafId("timer#1"), due_at=110.0)
LATER = e.SignalWaited(leaf=LeafId("signal:go#1"), name="go", due_at=130.0)
HELD = e.Paused(reason="rewind", detail="?", message=1, expires_at=120.0)


def _log(*bodies: e.Body) -> list[e.Event]:
    begins = (e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}")), e.Claimed(runner="w1", cause="created"))
    return [e.Event(number, 100.0, body) for number, body in enumerate((*begins, *bodies), 1)]


@pytest.mark.parametrize(
    ("bodies", "due_at", "wrong"),
    [
        ((SOON, LATER), 110.0, False),
        ((SOON, LATER), 100.0, False),
        ((SOON, LATER), 130.0, True),
        ((SOON, LATER), None, True),
        ((SOON, e.TimerFired(leaf=LeafId("timer#1")), LATER), 130.0, False),
        ((SOON, HELD), 120.0, False),
        ((SOON, HELD), None, True),
        ((SOON, e.Paused(reason="user")), None, False),
        ((SOON, e.WorkflowFailed(error=e.ErrorInfo("E", "no"))), None, False),
    ],
)
def test_a_run_that_rests_is_due_when_its_first_time_comes(
    bodies: tuple[e.Body, ...], due_at: float | None, wrong: bool
) -> None:
    assert bool(list(wrong_due(_log(*bodies), Released(due_at=due_at, now=100.0)))) is wrong


STEP = e.StepStarted(leaf=LeafId("work#1"), name="work", compensate="undo")
DONE, UNDONE = e.StepCompleted(leaf=STEP.leaf), e.CompensationStarted(leaf=STEP.leaf, key="k", attempt=1)
BACKS_OFF = e.CompensationRetryScheduled(leaf=STEP.leaf, attempt=1, due_at=120.0, error=e.ErrorInfo("E", "no"))


@pytest.mark.parametrize(
    ("bodies", "due_at", "wrong"),
    [
        ((STEP,), None, True),
        ((STEP,), 100.0, False),
        ((), None, True),
        ((STEP, e.Interrupted(signal="SIGTERM", runner="w1")), None, True),
        ((STEP, e.Paused(reason="user")), None, False),
        ((SOON,), None, False),
        ((STEP, DONE, UNDONE), None, True),
        ((STEP, DONE, UNDONE, BACKS_OFF), None, False),
        ((STEP, e.WorkflowFailed(error=e.ErrorInfo("E", "no"))), None, False),
    ],
)
def test_a_run_that_needs_no_message_is_not_given_back_until_one_comes(
    bodies: tuple[e.Body, ...], due_at: float | None, wrong: bool
) -> None:
    assert bool(list(asleep(_log(*bodies), Released(due_at=due_at, now=100.0)))) is wrong


def test_a_document_of_a_run_that_waits_is_read_at_its_commit() -> None:
    log = _log(SOON, LATER)
    doc = document(fold(RunId("run-1"), log))
    assert list(wrong_document(log, doc)) == []
    assert "wake_at" in "; ".join(wrong_document(log, msgspec.structs.replace(doc, wake_at=None)))
    # What came after the commit is no matter.
    more = [*log, e.Event(5, 111.0, e.TimerFired(leaf=LeafId("timer#1")))]
    assert list(wrong_document(more, doc)) == []
