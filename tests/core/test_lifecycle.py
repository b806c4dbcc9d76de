"""Which event may be appended in which status."""

from __future__ import annotations

import pytest

from buoy.core.log import events as e
from buoy.core.log.lifecycle import ACTIVE, MOVES, RESTING, TERMINAL, Status, allowed, check_move
from buoy.core.log.state import HANDLERS
from buoy.errors import WrongState

GOING = "running awaiting_input waiting_signal waiting compensating"
ALL = " ".join(each for each in Status if each != "moved")
BEGINS = GOING
ENDS = f"{GOING} paused interrupted"
UNENDED = f"pending {GOING} paused interrupted"

TABLE = {
    e.WorkflowCreated: "",
    e.Claimed: ALL,
    e.Paused: f"pending {GOING} interrupted",
    e.Resumed: "paused",
    e.Interrupted: f"{GOING} paused",
    e.CancelRequested: UNENDED,
    e.JumpRequested: ALL,
    e.BranchCreated: ALL,
    e.WorkflowRecovered: ALL,
    e.VersionBound: UNENDED,
    e.MessageRefused: ALL,
    e.JobsEnded: UNENDED,
    e.JobsReset: UNENDED,
    e.JobsStopped: UNENDED,
    e.ClusterChanged: UNENDED,
    e.Published: UNENDED,
    e.Moved: ALL,
    e.StepStarted: BEGINS,
    e.JobOffered: BEGINS,
    e.ModuleStarted: BEGINS,
    e.InteractionRequested: BEGINS,
    e.SignalWaited: BEGINS,
    e.TimerStarted: BEGINS,
    e.ChildStarted: BEGINS,
    e.LeafCancelled: BEGINS,
    e.CompensationStarted: BEGINS,
    e.StepCompleted: ENDS,
    e.StepFailed: ENDS,
    e.JobHeld: ENDS,
    e.RetryScheduled: ENDS,
    e.ModuleCompleted: ENDS,
    e.ModuleFailed: ENDS,
    e.InteractionResponse: ENDS,
    e.SignalReceived: ENDS,
    e.TimerFired: ENDS,
    e.ChildFinished: ENDS,
    e.CompensationRetryScheduled: ENDS,
    e.CompensationCompleted: ENDS,
    e.CompensationFailed: ENDS,
    e.WorkflowCompleted: GOING,
    e.WorkflowFailed: UNENDED,
    e.WorkflowCancelled: UNENDED,
}


def test_every_payload_has_a_row_of_moves_and_a_transition() -> None:
    assert set(MOVES) == set(e.BODIES)
    assert set(HANDLERS) == set(e.BODIES)
    assert set(TABLE) == set(e.BODIES)


@pytest.mark.parametrize("kind", e.BODIES, ids=e.event_name)
def test_a_payload_is_allowed_exactly_where_the_table_says(kind: type[e.Payload]) -> None:
    assert {status for status in Status if allowed(status, kind)} == {Status(name) for name in TABLE[kind].split()}


@pytest.mark.parametrize("kind", e.BODIES, ids=e.event_name)
def test_a_run_begins_with_its_creation_and_with_nothing_else(kind: type[e.Payload]) -> None:
    assert allowed(None, kind) == (kind is e.WorkflowCreated)


def test_statuses_are_parted_into_terminal_paused_and_active() -> None:
    assert TERMINAL | ACTIVE | {Status.PAUSED} == set(Status)
    assert not TERMINAL & ACTIVE
    assert RESTING < ACTIVE


def test_a_refusal_names_the_event_and_the_status() -> None:
    with pytest.raises(WrongState, match="resumed is not possible: the run is running"):
        check_move(Status.RUNNING, e.Resumed)
    with pytest.raises(WrongState, match="claimed is not possible: the run does not exist yet"):
        check_move(None, e.Claimed)
    check_move(Status.PAUSED, e.Resumed)


def test_every_event_is_run_level_or_an_end_or_names_its_leaf() -> None:
    for kind in e.BODIES:
        fields = kind.__struct_fields__
        assert ("leaf" in fields) == (kind not in e.RUN_LEVEL and kind not in e.ENDINGS), kind
