"""What a branch keeps of leaves that are under way beside what is run again."""

from __future__ import annotations

import msgspec
import pytest

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.state import fold
from buoy.core.remedy.rewind import plan_return

RUN = RunId("run")
ARM, OTHER = LeafId("1/work#1"), LeafId("2/work#1")
ERROR = e.ErrorInfo(type="Flaky", message="oh")


def _log(*bodies: e.Body) -> list[e.Event]:
    first = [e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}")), e.Claimed(runner="w1", cause="created")]
    return [e.Event(number, float(number), body) for number, body in enumerate([*first, *bodies], 1)]


def _start(leaf: LeafId, attempt: int = 1) -> e.StepStarted:
    return e.StepStarted(leaf=leaf, name="work", attempt=attempt, key="k")


def _retry(attempt: int) -> e.RetryScheduled:
    return e.RetryScheduled(leaf=ARM, attempt=attempt, due_at=9.0, error=ERROR)


@pytest.mark.parametrize(
    ("after", "phase", "attempt"),
    [((_retry(1),), "retrying", 1), ((_retry(1), _start(ARM, 2)), "open", 2), ((), "open", 1)],
)
def test_a_step_under_way_keeps_the_count_of_its_attempts(after: tuple[e.Body, ...], phase: str, attempt: int) -> None:
    log = _log(_start(ARM), _start(OTHER), e.StepCompleted(leaf=OTHER), *after)
    plan = plan_return(RUN, log, OTHER)
    assert (plan.dropped, plan.under_way) == ((OTHER,), (ARM,))
    back = [e.Event(len(log) + place, 20.0, body) for place, body in enumerate(plan.events("jump"), 1)]
    arm = fold(RUN, [*log, *back]).open[ARM]
    assert (arm.phase, arm.attempt) == (phase, attempt)
