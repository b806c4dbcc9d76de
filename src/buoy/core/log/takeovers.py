"""Takeovers: what the death of runners cost a run, from its log alone.

Invariants: all times are the run's. A takeover repeats the bodies that were under way when its runner died: those that
had started, and had no outcome when the next runner claimed the run. The log shows whether a run was left in the
middle. What its task says may be lost, for example to a message that wakes the run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.state import State

# The cause of a claim after the death of a runner.
LOST = "taken_over"
# The causes of claims that bring a run back: after a death, and by a recovery.
BROUGHT_BACK = (LOST, "recovered")
# Claims of who appends something and drives nothing.
_IN_PASSING = ("requested", "recovered")
_LETS_GO = (e.Paused, e.Resumed, e.Interrupted, e.BranchCreated)
_STARTS = (e.StepStarted, e.ModuleStarted)
_ENDS = (e.StepCompleted, e.StepFailed, e.ModuleCompleted, e.ModuleFailed, e.RetryScheduled, e.LeafCancelled)


class Takeover(msgspec.Struct, frozen=True):
    """One claim after a death. `stood_s`: since the last event before it. `repeated`: bodies that begin again.

    `repeated_s`: how long they had been under way when the log last moved; what was done after that is unknown.
    """

    stood_s: float
    repeated: int
    repeated_s: float


def left_by(state: State, log: Sequence[e.Event]) -> str | None:
    """The owner that left the run with a step under way, and never let it go by its log; None if there is none.

    A run whose owner lives has such a log as well: asked by a runner that has the run's task.
    """
    if not state.active or state.pause is not None:
        return None
    for event in reversed(log):
        body = event.body
        if isinstance(body, e.Claimed):
            # A remedy or a request that came since has let the next runner know what it has to know.
            driven = body.cause not in _IN_PASSING and "finding" not in body.evidence
            return body.runner if driven else None
        if isinstance(body, _LETS_GO):
            return None
    return None


def takeovers(log: Sequence[e.Event]) -> list[Takeover]:
    """The takeovers in a part of a log, in order."""
    found: list[Takeover] = []
    under_way: dict[LeafId, float] = {}
    before: e.Event | None = None
    for event in log:
        body = event.body
        if isinstance(body, _STARTS):
            under_way[body.leaf] = event.at
        elif isinstance(body, _ENDS):
            under_way.pop(body.leaf, None)
        elif isinstance(body, e.BranchCreated):
            under_way.clear()
        elif isinstance(body, e.Claimed) and body.cause == LOST and before is not None:
            lost_s = sum(max(before.at - at, 0.0) for at in under_way.values())
            found.append(Takeover(max(event.at - before.at, 0.0), len(under_way), lost_s))
            under_way = dict.fromkeys(under_way, event.at)
        before = event
    return found
