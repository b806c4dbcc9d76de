"""Outcomes: how the run of a scenario ended, read from its logs. Pure: no store, no clock."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.lineage import visible
from buoy.core.log.state import fold
from buoy.testing.crashtest.process import RUN_ID
from buoy.testing.crashtest.report import RunEnd
from buoy.testing.crashtest.scenario import Played

_ENDINGS = (e.WorkflowCompleted, e.WorkflowFailed, e.WorkflowCancelled)

# The reason for which a run whose code does not repeat itself is paused.
_DIVERGED = "nondeterminism"


def outcome_of(played: Played) -> RunEnd:
    """How the run, or the last of its successors, ended."""
    run_id: str = RUN_ID
    while True:
        log = played.logs.get(run_id, [])
        ending = next((event.body for event in reversed(visible(log)) if isinstance(event.body, _ENDINGS)), None)
        if isinstance(ending, e.WorkflowCompleted) and ending.continued_as in played.logs:
            run_id = str(ending.continued_as)
            continue
        return _outcome(run_id, log, ending)


def failed_step_of(played: Played) -> str | None:
    """The step whose failure ended the run or its last successor, if that is why it ended."""
    for log in reversed(list(played.logs.values())):
        ending = next((event.body for event in reversed(log) if isinstance(event.body, e.WorkflowFailed)), None)
        if ending is not None:
            starts = (event.body for event in log if isinstance(event.body, e.StepStarted))
            return next((start.name for start in starts if start.leaf == ending.cause_leaf), None)
    return None


def difference_in(played: Played) -> str | None:
    """What the code did otherwise than its log says, if that is why the run is paused."""
    outcome = outcome_of(played)
    if outcome.status != "paused" or outcome.cause != _DIVERGED:
        return None
    return outcome.detail or ""


def _outcome(run_id: str, log: Sequence[e.Event], ending: e.Body | None) -> RunEnd:
    match ending:
        case e.WorkflowCompleted():
            return RunEnd("completed", msgspec.json.decode(ending.result))
        case e.WorkflowFailed():
            return RunEnd("failed", error=str(ending.error), cause=ending.error.type)
        case e.WorkflowCancelled():
            return RunEnd("cancelled")
    state = fold(RunId(run_id), log)
    if state.pause is not None:
        reason, detail = state.pause.reason, state.pause.detail
        return RunEnd("paused", error=f"{reason}: {detail}", cause=reason, detail=detail)
    return RunEnd(str(state.status or "never started"))
