"""What is sound as a spec, and probably not what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.spec.problems import Problems
from buoy.core.spec.reader import read_spec
from buoy.core.spec.warnings import warnings_of


def warned(**step: Any) -> list[tuple[str, str]]:
    """The warnings about a spec whose last step is that one, each with its place."""
    steps = [{"id": "a", "run": "true"}, {"id": "b", **step}]
    problems = Problems()
    spec = read_spec({"name": "x", "parameters": {"k": 3}, "steps": steps, "result": {"y": "{{ steps.a }}"}}, problems)
    assert spec is not None and not problems.count, problems.found
    return [(str(place[-1]), text) for place, text in warnings_of(spec)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("echo {a.n}", "{{ steps.a.n }}"),
        ("echo { a.n.0 }", "{{ steps.a.n.0 }}"),
        ("echo {steps.a.n}", "{{ steps.a.n }}"),
        ("echo {parameters.k}", "{{ parameters.k }}"),
        ("echo {k.x}", "{k}"),
    ],
)
def test_one_brace_around_a_reference_is_told(text: str, meant: str) -> None:
    ((place, told),) = warned(run=text)
    assert place == "run" and told.endswith(f"a reference is written {meant}")


@pytest.mark.parametrize(
    "text",
    [
        "echo {{ steps.a.n }} {k}",
        "echo ${a.n} \\{a.n}",
        """echo '{"a": {"n": 1}}' '{a}' """.replace("{a}", "{k}"),
        "python -c 'print(f\"{row.name}\")'",
        "awk '{print $1.5}'",
        "echo a.n",
    ],
)
def test_braces_of_others_are_left_alone(text: str) -> None:
    assert warned(run=text) == []


def test_inputs_and_questions_are_looked_at_too() -> None:
    assert [place for place, _ in warned(ask={"title": "Is {a.n} fine?", "detail": "{a.m}"})] == ["title", "detail"]
    assert [place for place, _ in warned(run="true", **{"with": {"N": ["{a.n}"]}})] == ["N"]


def test_modules_are_meant_before_steps() -> None:
    modules = [{"id": "m", "run": "true"}, {"id": "n", "run": "echo {m.x} {a.x}"}]
    told = [text.rpartition("written ")[2] for _, text in warned(modules=modules)]
    assert told == ["{{ modules.m.x }}", "{{ steps.a.x }}"]


def test_not_more_is_told_than_anybody_reads() -> None:
    assert len(warned(run="{a.n} " * 500)) == 50
