"""Resources: groups by name, what fits, and limits after a correction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoy.core.batch.lots import JobTimes, cut, lot_leaf, lot_number, lot_size
from buoy.core.batch.resources import (
    Capacity,
    Correction,
    check_correction,
    corrected,
    fits,
    group_name,
    group_resources,
    job_queue,
    lack,
    queue_resources,
)
from buoy.core.spec.model import Resources
from buoy.errors import BadInput

_GIB = 2**30

resources = st.builds(
    Resources,
    cpus=st.integers(1, 128),
    memory_bytes=st.none() | st.integers(1, 2**45),
    gpus=st.integers(0, 8),
    nodes=st.integers(1, 64),
    time_s=st.none() | st.integers(1, 10**6).map(float),
)
rules = st.builds(
    Correction,
    memory_multiplier=st.floats(1.0, 4.0),
    runtime_multiplier=st.floats(1.0, 4.0),
    memory_max_bytes=st.none() | st.integers(1, 2**45),
    time_max_s=st.none() | st.floats(1.0, 10**6),
)


@settings(max_examples=100, deadline=None)
@given(resources)
def test_the_name_of_a_group_tells_its_resources(needed: Resources) -> None:
    assert group_resources(group_name(needed)) == needed
    assert queue_resources("nightly-1", job_queue("nightly-1", needed)) == needed
    assert queue_resources("nightly", job_queue("nightly-1", needed)) is None


@settings(max_examples=100, deadline=None)
@given(resources, rules, st.none() | st.integers(0, 2**45))
def test_a_corrected_limit_is_never_below_the_old_one(old: Resources, rule: Correction, peak: int | None) -> None:
    more, longer = corrected(old, "memory", rule, peak), corrected(old, "time", rule)
    assert (more.memory_bytes or 0) >= (old.memory_bytes or 0)
    assert (longer.time_s or 0) >= (old.time_s or 0)
    assert (more.cpus, more.gpus, more.nodes, more.time_s) == (old.cpus, old.gpus, old.nodes, old.time_s)
    if rule.memory_max_bytes is not None and old.memory_bytes is not None:
        assert (more.memory_bytes or 0) <= max(rule.memory_max_bytes, old.memory_bytes)


def test_a_limit_far_above_the_peak_still_grows() -> None:
    """8 GiB with a peak of 2 GiB: 1.5 times the peak would be less than before."""
    old = Resources(memory_bytes=8 * _GIB)
    assert corrected(old, "memory", Correction(), 2 * _GIB).memory_bytes == 12 * _GIB


def test_limits_are_rounded_up() -> None:
    assert corrected(Resources(time_s=100.0), "time", Correction()).time_s == 180.0
    assert corrected(Resources(memory_bytes=3 * 2**20), "memory", Correction()).memory_bytes == 5 * 2**20


@pytest.mark.parametrize("multiplier", [0.5, -1.0, 1e9])
def test_an_absurd_multiplier_is_refused(multiplier: float) -> None:
    with pytest.raises(BadInput, match="memory multiplier"):
        check_correction(Correction(memory_multiplier=multiplier))


def test_what_does_not_fit_is_named_with_both_amounts() -> None:
    here = Capacity(cpus=4, memory_bytes=8 * _GIB, time_left_s=60.0)
    assert lack(Resources(cpus=8), here) == "it needs 8 cpus, and the runner has 4"
    assert lack(Resources(gpus=1), here) == "it needs 1 gpus, and the runner has 0"
    assert lack(Resources(time_s=90.0), here) == "it needs 90 s, and the runner has 60 s left"
    assert fits(Resources(cpus=4, memory_bytes=8 * _GIB, time_s=60.0), here)


@settings(max_examples=100, deadline=None)
@given(st.none() | st.floats(0.0, 1e6), resources)
def test_a_lot_has_one_to_256_jobs(mean_s: float | None, needed: Resources) -> None:
    assert 1 <= lot_size(needed, mean_s) <= 256


def test_a_lot_is_about_a_minute_of_work() -> None:
    short, hours = Resources(), Resources(time_s=7200.0)
    assert lot_size(short, 1.0) == 60
    assert lot_size(short, 0.001) == 256
    assert lot_size(hours, None) == 1
    assert lot_size(hours, 6.0) == 10
    measured = JobTimes()
    assert measured.mean_s is None
    measured.add(1.0)
    measured.add(3.0)
    assert measured.mean_s == 2.0


def test_lots_are_numbered_and_cut_in_order() -> None:
    assert cut(range(5), 2) == [[0, 1], [2, 3], [4]]
    assert lot_number(lot_leaf(17)) == 17


@pytest.mark.parametrize(
    "rule",
    [
        Correction(memory_multiplier=0.5),
        Correction(runtime_multiplier=float("nan")),
        Correction(time_max_s=0.0),
        Correction(memory_max_bytes=2**60),
    ],
)
def test_a_correction_with_absurd_numbers_is_refused(rule: Correction) -> None:
    with pytest.raises(BadInput, match="is not allowed"):
        check_correction(rule)
