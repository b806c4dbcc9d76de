"""Which crashes a run is blamed for."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.diagnosis.crash_loops import Crashes, crashes
from buoy.core.limits import POISON_CAP, SOLO_AFTER
from buoy.core.log import events as e

from .cases import group_started
from .logbook import (
    PAUSED,
    RESUMED,
    asked,
    branched,
    claimed,
    completed,
    created,
    failed,
    log,
    started,
    undoing,
    undone,
)

BEGUN: list[e.Body] = [created(), claimed(), started("a#1")]


def crash(**evidence: Any) -> e.Claimed:
    return e.Claimed(runner="w", cause="taken_over", evidence={"proof": "lock free"} | evidence)


def read(*bodies: e.Body) -> Crashes:
    return crashes(log(*bodies))


def test_crashes_in_a_row_are_counted_with_the_leaf_that_was_under_way() -> None:
    found = read(*BEGUN, crash(), crash(), crash())
    assert (found.in_a_row, found.solo, found.leaf, found.signature) == (SOLO_AFTER, 0, "a#1", "lock free")
    assert (found.wants_solo, found.poison) == (True, False)


def test_only_crashes_of_a_claim_that_was_alone_count_against_the_cap() -> None:
    alone = [crash(solo=True) for _ in range(POISON_CAP)]
    before = read(*BEGUN, *alone)
    assert (before.solo, before.poison) == (POISON_CAP - 1, False)  # the last one still runs
    assert read(*BEGUN, *alone, crash()).poison


def test_progress_begins_the_count_anew() -> None:
    assert read(*BEGUN, crash(), crash(), completed("a#1"), started("b#1")).in_a_row == 0
    again = read(
        *BEGUN, completed("a#1"), branched(1, 2), started("a#1"), crash(), completed("a#1"), started("b#1"), crash()
    )
    assert again.in_a_row == 2  # a#1 had completed on an earlier branch


@pytest.mark.parametrize("evidence", [
    {"proof": "the host was rebooted"},
    {"boot_id": "a", "boot_id_now": "b"},
    {"cause": "preempted"},
    {"cause": "node_fail"},
    {"drained": True},
    {"scheduler": "slurm"},
    {"orphan": "it has no task"},
])  # fmt: skip
def test_the_loss_of_a_machine_is_nobodys_fault(evidence: dict[str, Any]) -> None:
    assert read(*BEGUN, crash(**evidence)).in_a_row == 0


def test_silence_that_was_proven_by_two_looks_counts() -> None:
    assert read(*BEGUN, crash(proof="silent")).in_a_row == 1


@pytest.mark.parametrize("bodies", [
    [created()],
    [created(), claimed(), asked("ask#1")],
    [created(), claimed(), started("a#1"), failed("a#1")],
    [created(), claimed(), group_started("s#1")],
])  # fmt: skip
def test_a_run_with_nothing_under_way_is_no_suspect(bodies: list[e.Body]) -> None:
    assert read(*bodies, crash()).in_a_row == 0


def test_code_that_ends_its_process_before_it_asks_for_anything_is_a_suspect() -> None:
    found = read(created(), claimed(), crash(), crash())
    assert (found.in_a_row, found.leaf) == (2, None)


def test_code_that_waits_is_none() -> None:
    assert read(created(), claimed(), asked("ask#1"), claimed("w2", "woken"), crash()).in_a_row == 0


def test_a_compensation_is_work_too() -> None:
    undo: list[e.Body] = [created(), claimed(), started("a#1"), completed("a#1"), undoing("a#1")]
    assert read(*undo, crash()).leaf == "a#1!compensation"
    assert read(*undo, undone("a#1"), crash()).in_a_row == 0


def test_a_stop_in_good_order_is_no_crash() -> None:
    assert read(*BEGUN, claimed("w2", "interrupted"), claimed("w3", "woken")).in_a_row == 0


def test_whoever_only_recovers_drives_nothing() -> None:
    found = read(*BEGUN, crash(solo=True), e.Claimed(runner="s", cause="recovered"), crash(solo=True))
    assert (found.in_a_row, found.solo) == (2, 1)


def test_a_persons_word_begins_the_count_anew() -> None:
    poison = e.Paused(reason="poison")
    assert read(*BEGUN, crash(), poison, RESUMED).in_a_row == 0
    assert read(*BEGUN, crash(), PAUSED, RESUMED).in_a_row == 1
    assert read(*BEGUN, crash(), branched(1, 2, dropped=("a#1",), cause="retry"), started("a#1")).in_a_row == 0


def test_a_branch_of_recovery_does_not() -> None:
    found = read(*BEGUN, crash(), branched(1, 2), started("a#1"), crash())
    assert found.in_a_row == 2


def test_what_a_branch_hides_is_not_under_way() -> None:
    assert read(*BEGUN, branched(1, 2), crash()).in_a_row == 0
    assert read(*BEGUN, branched(1, 3), crash()).in_a_row == 1


def test_a_crash_after_progress_is_not_one_alone() -> None:
    found = read(*BEGUN, crash(solo=True), completed("a#1"), started("b#1"), crash())
    assert (found.in_a_row, found.solo) == (1, 0)
