"""Tables of events in, state out."""

from __future__ import annotations

import pytest

from buoy.core.ids import BranchId, LeafId
from buoy.core.limits import DOCUMENT_LIST_MAX
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import ANOMALIES_MAX, State, fold
from buoy.core.log.transitions import compensation_leaf
from buoy.errors import CorruptLog

from .logbook import (
    BROKEN,
    CANCEL,
    DONE,
    INTERRUPTED,
    LOST,
    PAUSED,
    RESUMED,
    RUN,
    STOPPED,
    answered,
    asked,
    awaited,
    branched,
    child,
    child_ended,
    claimed,
    completed,
    created,
    failed,
    fired,
    folded,
    log,
    one_by_one,
    received,
    retrying,
    started,
    timer,
    undoing,
    undone,
)

LIVE = (created(), claimed())

STATUSES: list[tuple[Status, str, tuple[e.Body, ...]]] = [
    (Status.PENDING, "no runner claimed it", (created(),)),
    (Status.RUNNING, "claimed", LIVE),
    (Status.RUNNING, "a step is under way", (*LIVE, started("a#1"))),
    (Status.RUNNING, "code continues after a step", (*LIVE, started("a#1"), completed("a#1"))),
    (Status.RUNNING, "a failed step is for the code to handle", (*LIVE, started("a#1"), failed("a#1"))),
    (Status.WAITING, "for a retry", (*LIVE, started("a#1"), retrying("a#1"))),
    (Status.RUNNING, "the retry began", (*LIVE, started("a#1"), retrying("a#1"), started("a#1", 2))),
    (Status.AWAITING_INPUT, "a question", (*LIVE, asked("ask#1"))),
    (Status.RUNNING, "a question answered", (*LIVE, asked("ask#1"), answered("ask#1"))),
    (Status.RUNNING, "a question beside a step", (*LIVE, asked("ask#1"), started("a#1"))),
    (
        Status.AWAITING_INPUT,
        "a question beside a resting step",
        (*LIVE, asked("ask#1"), started("a#1"), retrying("a#1")),
    ),
    (Status.AWAITING_INPUT, "a question beside a signal", (*LIVE, asked("ask#1"), awaited("s#1"))),
    (Status.WAITING_SIGNAL, "a signal", (*LIVE, awaited("s#1"))),
    (Status.WAITING_SIGNAL, "a signal beside a timer", (*LIVE, awaited("s#1"), timer("t#1"))),
    (Status.RUNNING, "a signal received", (*LIVE, awaited("s#1"), received("s#1"))),
    (Status.WAITING, "a timer", (*LIVE, timer("t#1"))),
    (Status.RUNNING, "a timer fired", (*LIVE, timer("t#1"), fired("t#1"))),
    (Status.RUNNING, "a timer given up", (*LIVE, timer("t#1"), e.LeafCancelled(leaf=LeafId("t#1")))),
    (Status.WAITING, "a child", (*LIVE, child("c#1"))),
    (Status.RUNNING, "a child ended", (*LIVE, child("c#1"), child_ended("c#1"))),
    (Status.RUNNING, "a detached child is not waited for", (*LIVE, child("c#1", detach=True))),
    (Status.COMPENSATING, "undoing", (*LIVE, started("a#1"), completed("a#1"), CANCEL, undoing("a#1"))),
    (Status.RUNNING, "undone", (*LIVE, started("a#1"), completed("a#1"), undoing("a#1"), undone("a#1"))),
    (Status.PAUSED, "paused", (*LIVE, started("a#1"), PAUSED)),
    (Status.PAUSED, "paused before anybody claimed it", (created(), PAUSED)),
    (Status.PENDING, "resumed before anybody claimed it", (created(), PAUSED, RESUMED)),
    (Status.PAUSED, "a claim does not end a pause", (*LIVE, PAUSED, claimed("r2"))),
    (Status.PAUSED, "a step may end while paused", (*LIVE, started("a#1"), PAUSED, completed("a#1"))),
    (Status.AWAITING_INPUT, "resumed to what is open", (*LIVE, asked("ask#1"), PAUSED, RESUMED)),
    (Status.INTERRUPTED, "given back", (*LIVE, started("a#1"), INTERRUPTED)),
    (Status.INTERRUPTED, "what was under way ends late", (*LIVE, started("a#1"), INTERRUPTED, completed("a#1"))),
    (Status.RUNNING, "taken over", (*LIVE, started("a#1"), INTERRUPTED, claimed("r2"))),
    (Status.WAITING, "taken over while it rests", (*LIVE, timer("t#1"), INTERRUPTED, claimed("r2"))),
    (Status.PAUSED, "paused and given back", (*LIVE, PAUSED, INTERRUPTED)),
    (Status.INTERRUPTED, "resumed, but not taken over", (*LIVE, PAUSED, INTERRUPTED, RESUMED)),
    (Status.RUNNING, "resumed and taken over", (*LIVE, PAUSED, INTERRUPTED, RESUMED, claimed("r2"))),
    (Status.PAUSED, "taken over, but still paused", (*LIVE, PAUSED, INTERRUPTED, claimed("r2"))),
    (Status.RUNNING, "a cancel that code has not yet seen", (*LIVE, CANCEL)),
    (Status.COMPLETED, "completed", (*LIVE, DONE)),
    (Status.COMPLETED, "a claim revives nothing", (*LIVE, DONE, claimed("r2"))),
    (Status.FAILED, "failed", (*LIVE, LOST)),
    (Status.FAILED, "failed while paused", (*LIVE, PAUSED, LOST)),
    (Status.CANCELLED, "cancelled", (*LIVE, CANCEL, STOPPED)),
    (Status.CANCELLED, "cancelled before anybody claimed it", (created(), CANCEL, STOPPED)),
    (Status.MOVED, "copied to another store", (*LIVE, started("a#1"), e.Moved(to="s3://bucket/runs"))),
    (Status.MOVED, "copied after its end", (*LIVE, DONE, e.Moved(to="s3://bucket/runs"))),
    (Status.RUNNING, "a branch continues after an end", (*LIVE, started("a#1"), LOST, claimed(), branched(1, 2))),
    (Status.RUNNING, "a branch continues after an end that it inherits", (*LIVE, LOST, claimed(), branched(1, 3))),
]


@pytest.mark.parametrize(("status", "bodies"), [pytest.param(s, b, id=f"{s}: {why}") for s, why, b in STATUSES])
def test_the_status_follows_from_the_events_alone(status: Status, bodies: tuple[e.Body, ...]) -> None:
    state = folded(*bodies)
    assert state.status == status
    assert state.anomalies == []


def test_every_status_is_in_the_table() -> None:
    assert {status for status, _, _ in STATUSES} == set(Status)


@pytest.mark.parametrize("bodies", [pytest.param(b, id=f"{s}: {why}") for s, why, b in STATUSES])
def test_without_branches_a_fold_equals_event_by_event(bodies: tuple[e.Body, ...]) -> None:
    events = log(*bodies)
    if not any(isinstance(body, e.BranchCreated) for body in bodies):
        assert fold(RUN, events) == one_by_one(events)


def test_an_empty_log_is_a_run_that_does_not_exist() -> None:
    state = fold(RUN, [])
    assert state == State(run_id=RUN)
    with pytest.raises(CorruptLog, match="does not begin with workflow_created"):
        document(state)


def test_a_retry_remembers_attempt_error_and_due_time() -> None:
    state = folded(*LIVE, started("a#1"), retrying("a#1", attempt=1, due_at=2000.0))
    leaf = state.open[LeafId("a#1")]
    assert (leaf.phase, leaf.attempt, leaf.due_at, leaf.error) == ("retrying", 1, 2000.0, BROKEN)
    assert state.wake_at == 2000.0
    state = folded(*LIVE, started("a#1"), retrying("a#1"), started("a#1", 2))
    leaf = state.open[LeafId("a#1")]
    assert (leaf.phase, leaf.attempt, leaf.due_at, leaf.started_seq) == ("open", 2, None, 3)
    assert state.wake_at is None


def test_the_same_attempt_may_begin_twice_after_a_crash() -> None:
    state = folded(*LIVE, started("a#1"), claimed("r2", "taken_over"), started("a#1"), completed("a#1"))
    assert state.leaves[LeafId("a#1")].phase == "completed"
    assert state.anomalies == []


def test_the_run_wakes_at_the_earliest_of_its_due_times() -> None:
    state = folded(*LIVE, timer("t#1", 5000.0), awaited("s#1", 4000.0), asked("ask#1"))
    assert state.wake_at == 4000.0
    assert folded(*LIVE, asked("ask#1")).wake_at is None


def test_open_questions_are_listed_until_answered() -> None:
    assert [leaf.question_id for leaf in folded(*LIVE, asked("a#1"), asked("b#1")).questions()] == ["q/a#1", "q/b#1"]
    assert [leaf.id for leaf in folded(*LIVE, asked("a#1"), asked("b#1"), answered("a#1")).questions()] == ["b#1"]


def test_a_child_that_was_cancelled_counts_as_a_failed_leaf() -> None:
    state = folded(*LIVE, child("c#1"), child_ended("c#1", status="cancelled"))
    assert state.leaves[LeafId("c#1")].phase == "failed"


def test_an_end_closes_what_was_open() -> None:
    state = folded(*LIVE, started("a#1"), timer("t#1"), LOST)
    assert state.open == {}
    assert state.wake_at is None
    assert state.error == BROKEN
    assert state.ending_seq == 5


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ((*LIVE, asked("a#1"), answered("a#1", 1), awaited("s#1"), received("s#1", 1)), "message 1 is consumed twice"),
        ((*LIVE, completed("a#1")), "step_completed of a#1, which is not open"),
        ((*LIVE, retrying("a#1")), "retry of a#1, which is not open"),
        ((*LIVE, timer("t#1"), timer("t#1")), "t#1 begins, but is open already"),
        ((*LIVE, started("a#1"), completed("a#1"), started("a#1")), "a#1 begins again, but is completed"),
        ((*LIVE, created()), "workflow_created while running"),
        ((claimed(),), "claimed while not created"),
        ((*LIVE, DONE, started("a#1")), "step_started while completed"),
        ((*LIVE, RESUMED), "resumed while running"),
        ((created(), started("a#1")), "step_started while pending"),
    ],
)
def test_what_a_sound_log_does_not_hold_is_named_and_not_raised(bodies: tuple[e.Body, ...], expected: str) -> None:
    assert expected in " | ".join(folded(*bodies).anomalies)


def test_a_missing_number_is_named_also_where_events_are_hidden() -> None:
    events = log(*LIVE, started("a#1"), completed("a#1"), branched(1, 2))
    del events[2]
    assert fold(RUN, events).anomalies == ["event 4 follows event 2"]


def test_hidden_events_leave_no_anomaly_behind() -> None:
    events = log(*LIVE, started("a#1"), completed("a#1"), branched(1, 2), started("a#1"), completed("a#1"))
    state = fold(RUN, events)
    assert state.anomalies == []
    assert (state.head_seq, state.updated_at) == (7, 1007.0)


def test_anomalies_are_cut_at_their_limit() -> None:
    assert len(folded(*LIVE, *[completed("a#1")] * 50).anomalies) == ANOMALIES_MAX


def test_a_second_birth_undoes_nothing() -> None:
    state = folded(*LIVE, DONE, created(workflow="other"))
    assert state.status == Status.COMPLETED
    assert state.created is not None
    assert state.created.workflow == "order"


def test_every_kind_of_consumption_is_remembered() -> None:
    state = folded(
        *LIVE,
        started("a#1"),
        completed("a#1", message=1),
        started("b#1"),
        e.StepFailed(leaf=LeafId("b#1"), error=BROKEN, message=2),
        asked("q#1"),
        answered("q#1", 3),
        awaited("s#1"),
        received("s#1", 4),
        child("c#1"),
        child_ended("c#1", message=5),
        e.Paused(reason="user", message=6),
        e.Resumed(message=7),
        e.CancelRequested(message=8),
        e.JumpRequested(to=LeafId("a#1"), new_branch=BranchId(1), message=9),
        e.MessageRefused(message=10, reason="late"),
    )
    assert state.consumed == set(range(1, 11))
    assert state.anomalies == []


def test_claims_and_recoveries_count_over_the_whole_log_and_leaves_only_on_the_lineage() -> None:
    recovered = e.WorkflowRecovered(
        reason="x", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=2, finding="A1"
    )
    bodies = (*LIVE, started("a#1"), completed("a#1"), claimed("r2"), branched(1, 2), recovered, claimed("r3"))
    state = folded(*bodies)
    assert (state.claims, state.recoveries, state.branch_count, state.branch) == (3, 1, 1, 1)
    assert state.owner == "r3"
    assert state.ended == {}
    assert state.leaves == {}


def test_an_open_leaf_of_a_hidden_branch_counts_for_nothing() -> None:
    state = folded(*LIVE, asked("ask#1"), branched(1, 2))
    assert state.open == {}
    assert state.active == 0 and state.tally == {}
    assert state.status == Status.RUNNING


@pytest.mark.parametrize(("cause", "epoch"), [("jump", 1), ("retry", 1), ("recovery", 0), ("restart", 0)])
def test_only_the_users_own_jump_or_retry_raises_the_epoch(cause: str, epoch: int) -> None:
    state = folded(*LIVE, started("a#1"), completed("a#1"), branched(1, 2, dropped=("a#1",), cause=cause))
    assert state.epochs.get(LeafId("a#1"), 0) == epoch


def test_epochs_add_up_over_branches() -> None:
    state = folded(
        *LIVE,
        branched(1, 2, dropped=("a#1", "b#1"), cause="jump"),
        branched(2, 2, parent=1, dropped=("a#1",), cause="recovery"),
        branched(3, 2, parent=2, dropped=("a#1",), cause="retry"),
    )
    assert state.epochs == {"a#1": 2, "b#1": 1}


def test_what_was_undone_is_done_anew_under_a_new_key_even_by_recovery() -> None:
    undo = (*LIVE, started("a#1"), completed("a#1"), undoing("a#1"))
    assert folded(*undo).epochs == {}  # still the same effect, whose undoing is under way
    assert folded(*undo, undoing("a#1", attempt=2), undone("a#1"), branched(1, 2)).epochs == {"a#1": 1}


def test_a_compensation_is_open_under_a_name_of_its_own() -> None:
    state = folded(*LIVE, started("a#1"), completed("a#1"), undoing("a#1"))
    assert list(state.open) == [compensation_leaf(LeafId("a#1"))]
    assert state.leaves[LeafId("a#1")].phase == "completed"
    broken = folded(
        *LIVE,
        started("a#1"),
        completed("a#1"),
        undoing("a#1"),
        e.CompensationFailed(leaf=LeafId("a#1"), error=BROKEN),
    )
    assert broken.leaves[compensation_leaf(LeafId("a#1"))].error == BROKEN


def test_a_run_that_was_cancelled_and_is_retried_is_not_cancelled_again() -> None:
    cancelled = (*LIVE, started("a#1"), CANCEL, STOPPED, claimed())
    hidden = folded(*cancelled, branched(1, 2, cause="retry"))
    inherited = folded(*cancelled, branched(1, 5, cause="retry"))
    for state in (hidden, inherited):
        assert (state.cancel, state.error, state.status) == (None, None, Status.RUNNING)


def test_a_cancel_that_was_not_met_yet_outlives_a_recovery() -> None:
    assert folded(*LIVE, started("a#1"), CANCEL, claimed("r2"), branched(1, 2)).cancel == CANCEL


def test_a_pause_does_not_outlive_the_end_of_its_run() -> None:
    for cutoff in (2, 5):
        state = folded(*LIVE, started("a#1"), PAUSED, LOST, claimed(), branched(1, cutoff, cause="retry"))
        assert state.pause is None
        assert state.status == Status.RUNNING


def test_a_pause_outlives_a_branch() -> None:
    assert folded(*LIVE, started("a#1"), PAUSED, branched(1, 2)).status == Status.PAUSED


def test_only_a_new_fold_hides_what_a_branch_hides() -> None:
    events = log(*LIVE, asked("ask#1"), branched(1, 2))
    assert one_by_one(events).open
    assert not fold(RUN, events).open


def test_the_version_is_the_last_one_bound() -> None:
    assert folded(created(version="1")).version == "1"
    assert folded(created(version="1"), e.VersionBound(version="2")).version == "2"


def test_equal_logs_give_equal_documents() -> None:
    for _, _, bodies in STATUSES:
        assert document(fold(RUN, log(*bodies))) == document(fold(RUN, log(*bodies)))


def test_a_document_tells_what_the_log_amounts_to() -> None:
    parent = e.Parent(run=RUN, leaf=LeafId("c#1"))
    bodies = (created(queue="q", stack="s", env="e", policy="hold", parent=parent), claimed("r1"))
    found = document(folded(*bodies, started("a#1"), completed("a#1"), started("b#1"), failed("b#1"), timer("t#1")))
    assert (found.workflow, found.status, found.head_seq, found.owner) == ("order", Status.WAITING, 7, "r1")
    assert (found.queue, found.stack, found.env, found.policy, found.parent) == ("q", "s", "e", "hold", parent)
    assert (found.created_at, found.updated_at, found.wake_at) == (1001.0, 1007.0, 3000.0)
    assert (found.completed_count, found.failed_count, found.open_count) == (1, 1, 1)
    assert [(leaf.leaf, leaf.kind, leaf.due_at) for leaf in found.open] == [("t#1", "timer", 3000.0)]
    assert not found.ended
    assert document(folded(*LIVE, DONE)).ended


def test_the_lists_of_a_document_are_cut_at_their_limit_and_counted_beyond() -> None:
    many = DOCUMENT_LIST_MAX + 7
    found = document(folded(*LIVE, *(started(f"a#{number}") for number in range(many))))
    assert len(found.open) == DOCUMENT_LIST_MAX
    assert found.open_count == many
    assert found.open[0].leaf == "a#0"
