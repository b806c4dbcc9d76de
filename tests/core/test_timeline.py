"""At what time workflow code saw what the log has."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoy.core.ids import BranchId, LeafId
from buoy.core.log import events as e
from buoy.core.log.lineage import visible
from buoy.core.log.timeline import as_seen

from .logbook import claimed, completed, created, log, started

TAKEN = claimed("r2", "taken_over")
IN_PASSING = claimed("cli", "requested")
PAUSED, RESUMED = e.Paused(reason="user"), e.Resumed()
STOPPED = e.Interrupted(signal="SIGTERM", runner="r1")


def times(*bodies: e.Body, pending: Sequence[e.Body] = ()) -> tuple[int, list[int]]:
    """When the code began and saw each outcome, as the numbers of the events whose times they are."""
    whole = log(*bodies, *pending)
    # Another process than the one that created the run: a commit of its own.
    whole = [msgspec.structs.replace(event, nonce="n") if event.seq > 1 else event for event in whole]
    began_at, seen = as_seen(whole[: len(bodies)], whole[len(bodies) :])
    return round(began_at - 1000), [round(event.at - 1000) for event in seen if isinstance(event.body, e.StepCompleted)]


A, A_DONE, B, B_DONE, C = started("a#1"), completed("a#1"), started("b#1"), completed("b#1"), started("c#1")
LOGS = {
    "a run that waited for a worker": ((created(), claimed(), A), (), (2, [])),
    "one that waits still": ((created(),), (claimed(),), (2, [])),
    "one that was taken twice before its code began": ((created(), claimed(), TAKEN, A), (), (3, [])),
    "a request before the worker": ((created(), IN_PASSING, claimed(), A), (), (3, [])),
    "an outcome that the code acted on": ((created(), claimed(), A, A_DONE, B, TAKEN), (), (2, [4])),
    "one that it had no time to act on": ((created(), claimed(), A, A_DONE, STOPPED, TAKEN, B), (), (2, [6])),
    "the same, before anything follows": ((created(), claimed(), A, A_DONE), (TAKEN,), (2, [5])),
    "taken twice without a word of the code": ((created(), claimed(), A, A_DONE, TAKEN, TAKEN, B), (), (2, [6])),
    "outcomes that came while it was paused": (
        (created(), claimed(), A, B, PAUSED, A_DONE, B_DONE, RESUMED, C), (), (2, [8, 8]),
    ),
    "one before the pause, which the code has seen": (
        (created(), claimed(), A, B, A_DONE, PAUSED, B_DONE, RESUMED, C), (), (2, [5, 8]),
    ),
    "another attempt is not the code's": (
        (created(), claimed(), A, B, B_DONE, started("a#1", 2), TAKEN, C), (), (2, [7]),
    ),
    "another process in passing": ((created(), claimed(), A, A_DONE, IN_PASSING, B), (), (2, [4])),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_code_sees_things_when_it_can_act_on_them(name: str) -> None:
    bodies, pending, expected = LOGS[name]
    assert times(*bodies, pending=pending) == expected


def test_who_makes_a_run_and_drives_it_begins_at_its_creation() -> None:
    events = log(created(), claimed(), A)
    assert as_seen(events) == (events[0].at, events)


X, X_DONE, Y, Y_DONE = started("1/x#1"), completed("1/x#1"), started("2/y#1"), completed("2/y#1")


def back_to(number: int, cutoff: int, again: str, kept: tuple[str, ...] = ()) -> tuple[e.Body, ...]:
    created = e.BranchCreated(
        branch=BranchId(number),
        parent=BranchId(number - 1),
        cutoff_seq=cutoff,
        kept=tuple(map(LeafId, kept)),
        dropped=(LeafId(again),),
        cause="retry",
    )
    return (IN_PASSING, created)


def test_what_a_branch_keeps_rests_on_the_times_that_the_code_saw_before_it() -> None:
    """The second arm of a gather runs again, then the first: the second began when the first was still asked for."""
    before = (created(), claimed(), A, A_DONE, X, Y, Y_DONE, *back_to(1, 5, "2/y#1"), TAKEN, Y, Y_DONE)
    whole = log(*before, *back_to(2, 4, "1/x#1", kept=("2/y#1",)), TAKEN)
    for gone in (whole[: len(before)], whole):
        _, seen = as_seen(gone, (), visible(gone))
        assert [event.at for event in seen if event.body is A_DONE] == [whole[3].at]


def test_going_back_moves_on_the_time_of_what_nothing_else_rests_on() -> None:
    whole = log(created(), claimed(), A, A_DONE, X, X_DONE, *back_to(1, 4, "1/x#1"), TAKEN, X)
    _, seen = as_seen(whole, (), visible(whole))
    assert [event.at for event in seen if event.body is A_DONE] == [whole[8].at]


MOVES = st.sampled_from([A, A_DONE, B, B_DONE, C, TAKEN, IN_PASSING, PAUSED, RESUMED, STOPPED])


@given(st.lists(MOVES, max_size=12), st.lists(MOVES, max_size=8))
def test_what_follows_changes_no_time_that_the_code_has_acted_on(first: list[e.Body], more: list[e.Body]) -> None:
    whole = log(created(), claimed(), *first, C, *more)
    ours = len(first) + 2
    began_then, then = as_seen(whole[: ours + 1])
    began_now, now = as_seen(whole)
    assert began_then == began_now
    assert list(now)[:ours] == list(then)[:ours]


@given(st.lists(MOVES, max_size=20))
def test_time_never_goes_back_and_nothing_is_seen_before_it_happened(bodies: list[e.Body]) -> None:
    whole = log(created(), claimed(), *bodies)
    began_at, seen = as_seen(whole)
    assert all(there.at >= event.at for event, there in zip(whole, seen, strict=True))
    delivered = [event.at for event in seen if isinstance(event.body, e.StepCompleted)]
    assert delivered == sorted(delivered)
    assert all(began_at <= at for at in delivered)
