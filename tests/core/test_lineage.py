"""Which events a branch can see."""

from __future__ import annotations

import pytest

from buoy.core.ids import BranchId, LeafId
from buoy.core.log import events as e
from buoy.core.log.lineage import branches, current_branch, visible
from buoy.core.log.state import fold
from buoy.errors import CorruptLog

from .logbook import (
    DONE,
    PAUSED,
    RESUMED,
    RUN,
    answered,
    asked,
    awaited,
    branched,
    claimed,
    completed,
    created,
    log,
    received,
    seqs,
    started,
    undoing,
    undone,
)

# 1 created, 2 claimed, 3-4 a, 5-6 b, 7-8 c
THREE_STEPS = log(
    created(),
    claimed(),
    started("a#1"),
    completed("a#1"),
    started("b#1"),
    completed("b#1"),
    started("c#1"),
    completed("c#1"),
)


def seen_after(*bodies: e.Body) -> list[int]:
    return seqs(visible(log(*bodies, after=THREE_STEPS)))


def test_without_branches_everything_is_visible() -> None:
    assert visible(THREE_STEPS) == THREE_STEPS
    assert current_branch(THREE_STEPS) == BranchId(0)
    assert branches(THREE_STEPS) == {}


@pytest.mark.parametrize(
    ("branch", "expected"),
    [
        pytest.param(branched(1, 4), [1, 2, 3, 4, 9], id="the cutoff itself is kept"),
        pytest.param(branched(1, 3), [1, 2, 3, 9], id="a leaf is cut in two"),
        pytest.param(branched(1, 0), [1, 2, 9], id="zero keeps no leaf"),
        pytest.param(branched(1, 8), [1, 2, 3, 4, 5, 6, 7, 8, 9], id="at the end nothing is hidden"),
        pytest.param(branched(1, 4, kept=("c#1",)), [1, 2, 3, 4, 7, 8, 9], id="kept after the cutoff"),
        pytest.param(branched(1, 6, dropped=("a#1",)), [1, 2, 5, 6, 9], id="dropped before the cutoff"),
        pytest.param(branched(1, 4, kept=("c#1",), dropped=("c#1",)), [1, 2, 3, 4, 9], id="dropping beats keeping"),
        pytest.param(branched(1, 4, kept=("nowhere#1",)), [1, 2, 3, 4, 9], id="unknown kept leaves do nothing"),
    ],
)
def test_a_branch_sees_what_its_cutoff_and_its_lists_leave(branch: e.BranchCreated, expected: list[int]) -> None:
    assert seen_after(branch) == expected


def test_events_of_the_new_branch_are_seen_and_follow_in_log_order() -> None:
    assert seen_after(branched(1, 4), started("b#1"), completed("b#1")) == [1, 2, 3, 4, 9, 10, 11]


def test_the_events_of_an_older_branch_can_still_be_asked_for() -> None:
    events = log(branched(1, 4), started("b#1"), after=THREE_STEPS)
    assert seqs(visible(events, BranchId(0))) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_run_level_events_are_never_hidden() -> None:
    events = log(
        created(),
        claimed("r1"),
        started("a#1"),
        PAUSED,
        RESUMED,
        e.CancelRequested(message=4),
        e.VersionBound(version="2"),
        e.MessageRefused(message=5, reason="late"),
        e.JumpRequested(to=LeafId("a#1"), new_branch=BranchId(1)),
        branched(1, 0, cause="jump"),
        e.WorkflowRecovered(
            reason="x", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=0, finding="A1"
        ),
    )
    assert seqs(visible(events)) == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]


def test_an_end_after_the_cutoff_is_hidden_and_one_within_it_is_not() -> None:
    ended = log(DONE, after=THREE_STEPS)
    assert 9 not in seqs(visible(log(claimed(), branched(1, 8), after=ended)))
    assert 9 in seqs(visible(log(claimed(), branched(1, 9), after=ended)))


def test_a_chain_of_branches_hides_what_any_of_them_hides() -> None:
    events = log(
        branched(1, 4),  # 9: without b and c
        started("b#1"),
        completed("b#1"),
        started("c#1"),
        branched(2, 11, parent=1),  # 13: without the second c
        started("c#1"),
        completed("c#1"),
        branched(3, 15, parent=2, dropped=("a#1",)),  # 16
        after=THREE_STEPS,
    )
    assert seqs(visible(events)) == [1, 2, 9, 10, 11, 13, 14, 15, 16]


def test_a_hidden_leaf_does_not_come_back_on_a_later_branch_that_keeps_it() -> None:
    events = log(branched(1, 4), branched(2, 9, parent=1, kept=("c#1",)), after=THREE_STEPS)
    assert seqs(visible(events)) == [1, 2, 3, 4, 9, 10]


def test_a_chain_of_a_thousand_branches_is_no_trouble() -> None:
    events = list(THREE_STEPS)
    for number in range(1, 1001):
        events = log(branched(number, 4, parent=number - 1), after=events)
    shown = visible(events)
    assert current_branch(events) == BranchId(1000)
    assert seqs(shown)[:4] == [1, 2, 3, 4]
    assert len(shown) == 4 + 1000


def test_a_branch_on_an_older_parent_does_not_see_its_sibling() -> None:
    events = log(branched(1, 4), started("x#1"), branched(2, 6, parent=0), after=THREE_STEPS)
    assert seqs(visible(events)) == [1, 2, 3, 4, 5, 6, 9, 11]


def test_a_branch_that_is_its_own_ancestor_is_refused() -> None:
    with pytest.raises(CorruptLog, match="own ancestor"):
        visible(log(branched(1, 4, parent=1), after=THREE_STEPS))
    with pytest.raises(CorruptLog, match="own ancestor"):
        visible(log(branched(1, 4, parent=2), branched(2, 4, parent=1), after=THREE_STEPS))


def test_a_branch_of_an_unknown_parent_is_refused_by_number() -> None:
    with pytest.raises(CorruptLog, match="branch 7 is referred to, but was never created"):
        visible(log(branched(1, 4, parent=7), after=THREE_STEPS))


def test_a_message_whose_consumption_is_hidden_is_unread_again() -> None:
    before = log(created(), claimed(), asked("ask#1"), answered("ask#1", message=1))
    assert fold(RUN, before).consumed == {1}
    after = log(branched(1, 2), asked("ask#1"), after=before)
    assert fold(RUN, after).consumed == set()
    again = fold(RUN, log(answered("ask#1", message=1), after=after))
    assert again.consumed == {1}
    assert again.anomalies == []


def test_a_message_consumed_by_a_kept_leaf_stays_read() -> None:
    events = log(
        created(),
        claimed(),
        started("a#1"),
        awaited("p.1/packed#1"),
        received("p.1/packed#1", message=3),
        branched(1, 2, kept=("p.1/packed#1",)),
    )
    assert fold(RUN, events).consumed == {3}


def test_a_refused_message_stays_read_on_every_branch() -> None:
    events = log(created(), claimed(), e.MessageRefused(message=2, reason="late"), branched(1, 0))
    assert fold(RUN, events).consumed == {2}


def test_an_undone_leaf_is_dropped_by_every_new_branch_even_if_that_would_keep_it() -> None:
    events = log(undoing("b#1"), undone("b#1"), branched(1, 8, kept=("b#1",)), after=THREE_STEPS)
    assert seqs(visible(events)) == [1, 2, 3, 4, 7, 8, 11]


def test_an_undone_leaf_may_be_done_anew_on_the_new_branch() -> None:
    events = log(undoing("b#1"), branched(1, 8), started("b#1"), completed("b#1"), after=THREE_STEPS)
    state = fold(RUN, events)
    assert state.leaves[LeafId("b#1")].phase == "completed"
    assert state.leaves[LeafId("b#1")].started_seq == 11
    assert state.anomalies == []
