"""Each time of a schedule starts one run: what breaks that is noticed."""

from __future__ import annotations

import msgspec
from simulator.timetables import wrong_fires

from buoy.core.log import events as e
from buoy.core.schedule.schedule import Schedule, run_id

ADDED = Schedule(
    name="nightly", workflow="w", input=msgspec.Raw(b"{}"), created_at=1_000.7, settled_at=1_000.7, number=1,
    every_s=10, catch_up="all",
)  # fmt: skip
STORED = msgspec.structs.replace(ADDED, number=3, settled_at=1_030.0, fired=3)
BORN = e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}"), by="schedule nightly")


def _births(*times: float) -> dict[str, e.WorkflowCreated]:
    return {run_id("nightly", at): BORN for at in times}


def _told(outbox: dict[str, e.WorkflowCreated], stored: Schedule | None = STORED) -> str:
    return "; ".join(wrong_fires(ADDED, stored, outbox))


def test_a_run_for_every_time_breaks_no_promise() -> None:
    others = {"run-1": msgspec.structs.replace(BORN, by="person-1")}
    assert _told({**_births(1_010.0, 1_020.0, 1_030.0), **others}) == ""


def test_a_run_that_is_there_before_it_was_noted_breaks_no_promise() -> None:
    assert _told(_births(1_010.0, 1_020.0, 1_030.0, 1_040.0)) == ""


def test_a_time_without_a_run_is_noticed() -> None:
    assert "no run was started for 19700101T001700Z" in _told(_births(1_010.0, 1_030.0))


def test_a_time_that_may_be_skipped_is_not_missed() -> None:
    last = msgspec.structs.replace(STORED, catch_up="last", fired=1, skipped=2)
    assert _told(_births(1_030.0), last) == ""
    assert "2 times are noted as fired, and 1 runs" in _told(_births(1_030.0), msgspec.structs.replace(last, fired=2))
    assert "1 as skipped, and 3 have passed" in _told(_births(1_030.0), msgspec.structs.replace(last, skipped=1))


def test_a_time_that_was_fired_and_noted_as_skipped_breaks_no_promise() -> None:
    last = msgspec.structs.replace(STORED, catch_up="last", fired=1, skipped=2)
    assert _told(_births(1_010.0, 1_030.0), last) == ""
    assert _told(_births(1_010.0, 1_030.0), msgspec.structs.replace(last, fired=3, skipped=0)) != ""


def test_a_time_is_let_go_only_when_it_is_late() -> None:
    last = msgspec.structs.replace(STORED, catch_up="last", fired=1, skipped=2)
    births, born = _births(1_030.0), run_id("nightly", 1_030.0)
    assert "and it was not late" in "; ".join(wrong_fires(ADDED, last, births, {born: 1_031.0}))
    assert "; ".join(wrong_fires(ADDED, last, births, {born: 1_090.0})) == ""


def test_two_runs_for_one_time_are_noticed() -> None:
    outbox = {**_births(1_010.0, 1_020.0, 1_030.0), f"{run_id('nightly', 1_020.0)}-2": BORN}
    assert "were started for the same time" in _told(outbox)


def test_a_run_for_no_time_is_noticed() -> None:
    for other in (1_000.0, 1_011.0):
        assert "not one of its own" in _told(_births(1_010.0, 1_020.0, 1_030.0, other))
    assert "not one of its own" in _told({**_births(1_010.0, 1_020.0, 1_030.0), "nightly-soon": BORN})


def test_a_lost_schedule_and_a_wrong_count_are_noticed() -> None:
    assert "is lost" in _told({}, None)
    whole = _births(1_010.0, 1_020.0, 1_030.0)
    assert "4 times are noted as fired, and 3 have passed" in _told(whole, msgspec.structs.replace(STORED, fired=4))
