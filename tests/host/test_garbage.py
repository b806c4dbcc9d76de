"""A worker's collector looks seldom, and never more often than it did."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from buoy.host.garbage import collect_seldom


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    was_on, threshold = gc.isenabled(), gc.get_threshold()
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        if was_on:
            gc.enable()


def test_the_collector_looks_less_often_and_the_older_generations_stay_as_they_were() -> None:
    gc.set_threshold(700, 10, 20)
    collect_seldom()
    assert gc.get_threshold()[:2] == (10_000, 10)


@pytest.mark.parametrize("first", [0, 50_000])
def test_a_collector_that_looks_never_or_even_less_often_is_left_alone(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    collect_seldom()
    assert gc.get_threshold()[0] == first


def test_a_collector_that_was_turned_off_is_left_alone() -> None:
    gc.set_threshold(700, 10, 10)
    gc.disable()
    collect_seldom()
    assert not gc.isenabled() and gc.get_threshold()[0] == 700
