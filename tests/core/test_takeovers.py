"""What takeovers cost, from a log alone."""

from __future__ import annotations

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.takeovers import Takeover, takeovers


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
