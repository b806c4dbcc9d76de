"""A log read by the names that its steps have now."""

from __future__ import annotations

import pytest

from buoy.core.ids import LeafId, child_run_id
from buoy.core.log import events as e
from buoy.core.log.lineage import visible
from buoy.core.log.renames import check_renames, leaves_of, named_now, new_leaf, occurs
from buoy.core.log.state import fold
from buoy.errors import BadInput

from .logbook import RUN, answered, asked, branched, claimed, completed, created, log, started, undoing


def bound(version: str = "2", **renamed: str) -> e.VersionBound:
    return e.VersionBound(version=version, renamed=renamed)


@pytest.mark.parametrize(
    ("leaf", "renamed", "expected"),
    [
        ("charge#1", {"charge": "pay"}, "pay#1"),
        ("charge#3", {"charge": "pay"}, "pay#3"),
        ("1.2/charge#2", {"charge": "pay"}, "1.2/pay#2"),
        ("charges#1", {"charge": "pay"}, "charges#1"),
        ("gather/fetch#1", {"gather": "collect"}, "collect/fetch#1"),
        ("gather/review/ask#1", {"gather": "collect"}, "collect/review/ask#1"),
        ("gather/fetch#1", {"gather/fetch": "gather/get"}, "gather/get#1"),
        ("gather/review/ask#1", {"gather/review": "gather/look"}, "gather/look/ask#1"),
        ("gather/fetch#1", {"fetch": "get"}, "gather/fetch#1"),
        ("gather/fetch#1", {"gather": "collect", "gather/fetch": "collect/get"}, "collect/get#1"),
        ("a#1", {"a": "b", "b": "a"}, "b#1"),
        ("signal:go#1", {"signal:go": "signal:start"}, "signal:start#1"),
    ],
)
def test_scope_and_occurrence_stay(leaf: str, renamed: dict[str, str], expected: str) -> None:
    assert new_leaf(LeafId(leaf), renamed) == expected


def test_all_before_the_rename_is_read_by_the_new_name_and_nothing_after_it() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), bound(a="b"), started("a#1"))
    assert leaves_of(named_now(events)) == ["b#1", "a#1"]
    state = fold(RUN, events)
    assert {leaf.id: (leaf.name, leaf.phase) for leaf in state.leaves.values()} == {
        "b#1": ("b", "completed"),
        "a#1": ("a", "open"),
    }
    assert (state.version, state.anomalies) == ("2", [])
    assert [getattr(event.body, "leaf", None) for event in visible(events)][2] == "b#1"


def test_reading_by_new_names_twice_is_reading_once() -> None:
    events = log(created(), claimed(), started("a#1"), started("b#1"), bound(a="b", b="a"))
    once = named_now(events)
    assert named_now(once) == once
    assert fold(RUN, once).leaves.keys() == fold(RUN, events).leaves.keys()


def test_a_log_without_renames_is_not_copied() -> None:
    events = log(created(), claimed(), started("a#1"), e.VersionBound(version="2"))
    assert named_now(events) is events


def test_what_a_rename_touched_keeps_the_key_of_its_effects() -> None:
    events = log(created(), claimed(), started("charge#1"), bound(charge="pay"))
    state = fold(RUN, events)
    assert state.key(LeafId("pay#1")) == "run-1/charge#1/0"
    assert state.child_id(LeafId("pay#1")) == child_run_id(RUN, LeafId("charge#1"), 0)
    assert state.key(LeafId("pay#2")) == "run-1/pay#2/0"


def test_a_new_step_under_a_name_that_was_given_up_is_somebody_else() -> None:
    events = log(created(), claimed(), started("charge#1"), bound(charge="pay"))
    keys = {fold(RUN, events).key(LeafId(leaf)) for leaf in ("pay#1", "charge#1")}
    assert keys == {"run-1/charge#1/0", "run-1/charge#1~1/0"}
    again = log(started("charge#1"), bound("3", charge="third"), after=events)
    state = fold(RUN, again)
    found = [state.key(LeafId(leaf)) for leaf in ("pay#1", "third#1", "charge#1")]
    assert found == ["run-1/charge#1/0", "run-1/charge#1~1/0", "run-1/charge#1~2/0"]


def test_a_name_that_comes_back_is_who_it_was() -> None:
    events = log(created(), claimed(), started("a#1"), bound(a="b"), bound("3", b="a"))
    state = fold(RUN, events)
    assert state.key(LeafId("a#1")) == "run-1/a#1/0"
    assert state.leaves.keys() == {"a#1"}


def test_two_names_may_be_swapped() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), started("b#1"), bound(a="b", b="a"))
    state = fold(RUN, events)
    assert {leaf.id: leaf.phase for leaf in state.leaves.values()} == {"b#1": "completed", "a#1": "open"}
    assert [state.key(LeafId(leaf)) for leaf in ("b#1", "a#1")] == ["run-1/a#1/0", "run-1/b#1/0"]


def test_branches_and_epochs_follow_the_new_name() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), branched(1, 2, dropped=("a#1",), cause="retry"),
        bound(a="b"),
    )  # fmt: skip
    state = fold(RUN, events)
    assert state.leaves.keys() == set()
    assert state.key(LeafId("b#1")) == "run-1/a#1/1"


def test_a_compensation_under_way_keeps_its_key() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), undoing("a#1"), bound(a="b"))
    state = fold(RUN, events)
    assert state.open.keys() == {"b#1!compensation"}
    assert state.key(LeafId("b#1")) == "run-1/a#1/0"


def test_an_answer_finds_its_question_by_the_old_id() -> None:
    events = log(created(), claimed(), asked("gather/ask#1"), answered("gather/ask#1"), bound(gather="collect"))
    names = fold(RUN, events).names
    assert names.now(LeafId("gather/ask#1")) == "collect/ask#1"
    assert names.now(LeafId("gather/ask#1~1")) == "gather/ask#1"
    assert names.now(LeafId("other#1")) == "other#1"


@pytest.mark.parametrize(
    ("renamed", "why"),
    [
        ({"x": "y"}, "has no step 'x'"),
        ({"a": "b"}, "a#1 and b#1 would both be b#1|b#1 and a#1 would both be b#1"),
        ({"a": "c", "b": "c"}, "would both be c#1"),
        ({"a": "a"}, "would keep its name"),
        ({"a": "no good"}, "is not allowed"),
        ({"a": "x/y"}, "same depth"),
        ({"ask": "question"}, "no name of their own"),
        ({"a": ""}, "is not allowed"),
    ],
)
def test_a_rename_that_makes_no_sense_is_refused(renamed: dict[str, str], why: str) -> None:
    events = log(created(), claimed(), started("a#1"), started("b#1"), asked("ask#1"))
    with pytest.raises(BadInput, match=why):
        check_renames(events, renamed)


def test_a_leaf_that_only_an_old_branch_saw_counts_for_collisions() -> None:
    events = log(created(), claimed(), started("a#1"), branched(1, 2), started("b#1"))
    with pytest.raises(BadInput, match="would both be b#1"):
        check_renames(events, {"a": "b"})


def test_what_was_renamed_already_is_known_by_its_new_name_only() -> None:
    events = log(created(), claimed(), started("a#1"), bound(a="b"))
    assert check_renames(events, {"b": "c"}) == {"b#1": "c#1"}
    assert occurs(events, "b")
    assert not occurs(events, "a")
