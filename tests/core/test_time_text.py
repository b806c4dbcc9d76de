"""Durations from text and to words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from buoy.core.durations import Duration, in_words, seconds
from buoy.errors import BadInput


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30s", 30.0),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("3d", 259200.0),
        ("1w", 604800.0),
        ("1h30m", 5400.0),
        (" 1h 30m ", 5400.0),
        ("1.5 h", 5400.0),
        ("1m500ms", 60.5),
        ("0s", 0.0),
        (90, 90.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_a_duration_is_read_in_any_of_its_forms(value: Duration, expected: float) -> None:
    assert seconds(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    "value",
    ["", "s", "30", "-5s", "5 minutes", "5S", "1h30", "5s!", "1e3s", "5s\n5", "inf", "٣s", True, None, [1], b"5s", ...],
    ids=repr,
)
def test_what_is_no_duration_is_refused_with_examples(value: object) -> None:
    with pytest.raises(BadInput, match=r"timeout .* is not a duration; write"):
        seconds(value, "timeout")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [-1, -0.001, float("nan"), float("inf"), 1e10, 10**400, -(10**400), "9" * 400 + "s", timedelta(days=-1)]
)
def test_a_negative_or_endless_duration_is_refused(value: Duration) -> None:
    with pytest.raises(BadInput, match="must not be negative or endless; the most is 300 years"):
        seconds(value)


@pytest.mark.parametrize(
    ("span_s", "words"),
    [
        (0, "0 s"),
        (3.4, "3 s"),
        (-3, "3 s"),
        (59.6, "1 min"),
        (240, "4 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400, "1 d"),
        (273600, "3 d 4 h"),
    ],
)
def test_a_span_is_told_in_the_two_largest_units(span_s: float, words: str) -> None:
    assert in_words(span_s) == words
