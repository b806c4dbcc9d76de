"""Conditions of specs: what they mean, and that they can do nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.spec.condition import holds
from buoy.core.spec.template import Ref
from buoy.errors import BadInput

RESULTS: dict[str, Any] = {"steps.a": 5, "steps.b.name": "lamp", "steps.c": [1, "x"], "steps.d": None, "steps.t": True}


def lookup(ref: Ref) -> Any:
    return RESULTS[ref.source]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false or true", True),
        ("true and false", False),
        ("true or false and false", True),
        ("(true or false) and false", False),
        ("not false", True),
        ("not not true", True),
        ("not steps.t and true", False),
        ("steps.a == 5", True),
        ("steps.a != 5", False),
        ("steps.a > 4.5 and steps.a <= 5", True),
        ("steps.a == '5'", False),
        ("steps.t == 1", False),
        ("steps.d == null", True),
        ("steps.d", False),
        ("steps.b.name == 'lamp'", True),
        ('steps.b.name == "lamp"', True),
        ("'am' in steps.b.name", True),
        ("'x' in steps.c", True),
        ("2 not in steps.c", True),
        ("steps.b.name < 'lamq'", True),
        ("{k} == 3", True),
        ("{k} >= -2", True),
        ("false and steps.zz == 1", False),
    ],
)
def test_what_a_condition_means(text: str, expected: bool) -> None:
    assert holds(text, {"k": 3}, lookup) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found 'the end'"),
        ("1 == ", "expected a value"),
        ("true true", "expected 'and', 'or' or the end"),
        ("(true", "expected '\\)'"),
        ("steps.a not 5", "expected 'in' after 'not'"),
        ("steps.a = 5", "'=' has no meaning there; write '==' to compare"),
        ("__import__('os')", "reference '__import__' is not known"),
        ("steps.a.__class__()", "a part that is no name|expected 'and'"),
        ("[1]", "has no meaning there"),
        ("steps.a", "wants true or false, found 5"),
        ("steps.b.name < 3", "only two numbers or two texts"),
        ("1 in 5", "'in' wants a list"),
        ("1 < 2 < 3", "expected 'and', 'or' or the end"),
        ("'" + "a" * 3000 + "' == 1", "at most 2000 characters"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        holds(text, {}, lookup)
