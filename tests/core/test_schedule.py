"""Schedules: what is due, what is made up for, and what is let go."""

from __future__ import annotations

from datetime import UTC

import msgspec
import pytest

from buoy.core.ids import RunId
from buoy.core.schedule.schedule import Due, Schedule, check_schedule, due, run_id, settled
from buoy.errors import BadInput
from tests.patience import cpu_s

START = 1_767_225_600.0  # 2026-01-01 00:00 UTC
HOUR_S = 3600.0


def schedule(**more: object) -> Schedule:
    made = Schedule(name="s", workflow="w", input=msgspec.Raw(b"{}"), created_at=START, settled_at=START)
    return msgspec.structs.replace(made, **(more or {"cron": "0 * * * *"}))


def test_nothing_is_due_before_its_time() -> None:
    assert due(schedule(), START + HOUR_S - 1, UTC) is None
    assert due(schedule(), START + HOUR_S, UTC) == Due((START + HOUR_S,), 0, START + HOUR_S)
    after = settled(schedule(), Due((START + HOUR_S,), 0, START + HOUR_S))
    assert (after.fired, after.number, after.last_run) == (1, 1, "s-20260101T010000Z")
    assert due(after, START + HOUR_S + 5, UTC) is None


@pytest.mark.parametrize(
    ("policy", "late_s", "hours", "skipped"),
    [
        ("none", 10, [5], 4),
        ("none", 600, [], 5),
        ("last", 10, [5], 4),
        ("last", 600, [5], 4),
        ("all", 600, [1, 2, 3, 4, 5], 0),
    ],
)
def test_missed_times_are_made_up_for_as_the_policy_says(
    policy: str, late_s: float, hours: list[int], skipped: int
) -> None:
    now = START + 5 * HOUR_S + late_s
    for times in ({"cron": "0 * * * *"}, {"every_s": 3600}):
        found = due(schedule(catch_up=policy, **times), now, UTC)
        assert found is not None
        assert [int((at - START) / HOUR_S) for at in found.fires] == hours
        assert found.skipped == skipped
        assert found.settled_at == (now if policy != "all" else START + 5 * HOUR_S)


def test_after_a_year_off_only_what_matters_is_started() -> None:
    now = START + 365 * 24 * HOUR_S + 90.0
    for times in ({"cron": "* * * * *"}, {"every_s": 60}):
        last = due(schedule(catch_up="last", **times), now, UTC)
        assert last is not None and last.fires == (now - 30.0,)
        none = due(schedule(catch_up="none", **times), now, UTC)
        assert none is not None and none.fires == (now - 30.0,)
        every = due(schedule(catch_up="all", **times), now, UTC)
        assert every is not None and (len(every.fires), every.settled_at) == (1000, START + 60_000.0)
    yearly = due(schedule(catch_up="last", cron="*/7 3 * * *"), now, UTC)
    assert yearly is not None and len(yearly.fires) == 1 and 20 * HOUR_S < now - yearly.fires[0] < 21 * HOUR_S


def test_a_year_off_takes_no_longer_to_look_at_than_some_days() -> None:
    def look(days: int) -> None:
        now = START + days * 24 * HOUR_S + 90.0
        for policy in ("last", "none", "all"):
            for times in ({"cron": "* * * * *"}, {"every_s": 60}):
                due(schedule(catch_up=policy, **times), now, UTC)

    assert cpu_s(lambda: look(365)) < 10 * cpu_s(lambda: look(10))


def test_what_rests_or_was_removed_fires_nothing() -> None:
    now = START + 9 * HOUR_S
    assert due(schedule(cron="0 * * * *", paused_at=START), now, UTC) is None
    assert due(schedule(cron="0 * * * *", removed_at=START), now, UTC) is None


def test_a_clock_that_goes_back_fires_nothing_twice() -> None:
    after = settled(schedule(), Due((START + HOUR_S,), 0, START + HOUR_S))
    assert due(after, START + HOUR_S - 600, UTC) is None
    assert due(after, START + HOUR_S, UTC) is None


def test_a_run_is_named_after_its_time() -> None:
    assert run_id("nightly", START + 3 * HOUR_S) == RunId("nightly-20260101T030000Z")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"name": "a/b", "every_s": 5}, "schedule name '.*' is not allowed"),
        ({"name": "x" * 101, "every_s": 5}, "longer than 100"),
        ({}, "either"),
        ({"cron": "* * * * *", "every_s": 5}, "found both; give one of them"),
        ({"every_s": 0}, "too short"),
        ({"cron": "nonsense"}, "fields"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(more: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        check_schedule(schedule(**{"cron": None, **more}), UTC)
