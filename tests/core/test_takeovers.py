"""What takeovers cost, from a log alone."""

from __future__ import annotations

import pytest

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.state import fold
from buoy.core.log.takeovers import Takeover, left_by, takeovers


def log_of(*bodies: tuple[float, e.Body]) -> list[e.Event]:
    return [e.Event(seq, at, body) for seq, (at, body) in enumerate(bodies, 1)]


def started(name: str) -> e.StepStarted:
    return e.StepStarted(leaf=LeafId(f"{name}#1"), name=name, args=e.NULL)


def test_a_takeover_repeats_what_was_under_way_and_counts_how_long_the_run_stood() -> None:
    log = log_of(
        (0.0, e.WorkflowCreated(workflow="w", input=e.NULL)),
        (0.0, e.Claimed(runner="one", cause="created")),
        (1.0, started("a")),
        (1.0, started("b")),
        (3.0, e.StepCompleted(LeafId("a#1"), e.NULL)),
        (10.0, e.Claimed(runner="two", cause="taken_over")),
        (12.0, e.StepCompleted(LeafId("b#1"), e.NULL)),
        (20.0, e.Claimed(runner="three", cause="taken_over")),
        (21.0, e.Claimed(runner="four", cause="woken")),
    )
    assert takeovers(log) == [Takeover(7.0, 1, 2.0), Takeover(8.0, 0, 0.0)]
    assert takeovers(log[5:]) == [Takeover(8.0, 0, 0.0)]


A = LeafId("a#1")


@pytest.mark.parametrize(
    ("more", "owner"),
    [
        ((started("a"),), "one"),
        ((started("a"), e.Claimed(runner="two", cause="taken_over")), "two"),
        ((), None),
        ((started("a"), e.StepCompleted(A, e.NULL)), None),
        ((started("a"), e.RetryScheduled(leaf=A, attempt=1, due_at=9.0, error=e.ErrorInfo("E", "no"))), None),
        ((started("a"), e.Interrupted(signal="SIGTERM", runner="one")), None),
        ((started("a"), e.Paused(reason="user")), None),
        ((started("a"), e.Paused(reason="user"), e.Resumed()), None),
        ((started("a"), e.Claimed(runner="person", cause="requested")), None),
        ((started("a"), e.Claimed(runner="sweep", cause="taken_over", evidence={"finding": "H1"})), None),
    ],
    ids=["executes", "again", "begins", "completed", "backs off", "stopped", "paused", "resumed", "asked", "swept"],
)
def test_a_run_is_left_in_the_middle_by_who_executes_it_and_says_no_more(
    more: tuple[e.Body, ...], owner: str | None
) -> None:
    begins = (e.WorkflowCreated(workflow="w", input=e.NULL), e.Claimed(runner="one", cause="created"))
    log = log_of(*((1.0, body) for body in (*begins, *more)))
    assert left_by(fold(RunId("r"), log), log) == owner
