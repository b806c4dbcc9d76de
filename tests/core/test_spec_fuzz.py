"""Any spec is planned or refused with reasons: sound ones that were damaged somewhere, and plain nonsense."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from buoy.core.spec.plan import plan_spec
from buoy.core.spec.problems import Problems
from buoy.core.spec.reader import read_spec
from buoy.engine.spec.workflow import load_spec
from buoy.errors import BadSpec

SOUND: dict[str, Any] = {
    "name": "nightly",
    "recovery": "restart",
    "parameters": {"k": "1:3", "site": ["a", "b"]},
    "steps": [
        {
            "id": "gather",
            "modules": [
                {"id": "fetch", "call": "flows:fetch", "with": {"url": "u"}},
                {"id": "review", "ask": {"title": "Publish?", "options": ["yes", "no"]}},
            ],
        },
        {
            "id": "train_{k}",
            "needs": ["gather"],
            "run": "python train.py --fold {k}",
            "resources": {"cpus": 8, "memory": "16GiB", "time": "2h"},
            "retries": 2,
            "timeout": "1h",
        },
        {"id": "end", "needs": ["train_{k}"], "run": "true", "when": "{gather.review} == 'yes'"},
    ],
    "actions": [
        {"trigger": "on_workflow_start", "kind": "run_commands", "commands": ["mkdir -p out"], "timeout": "5m"},
        {
            "trigger": "on_jobs_ready",
            "kind": "schedule_nodes",
            "jobs": ["train_{k}"],
            "walltime": "4h",
            "allocations": 2,
        },
    ],
}
TEXT = """name: nightly
parameters: {k: "1:3"}
steps:
  - id: gather
    run: echo hello
  - id: "train_{k}"
    needs: [gather]
    run: echo {k}
"""
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
nonsense = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a spec."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deep for key, each in inner for deep in paths(each, (*path, key)))]


def damaged(spec: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(spec)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


def planned_or_refused(data: object) -> None:
    problems = Problems()
    try:
        spec = read_spec(data, problems)
        if spec is not None:
            plan_spec(spec, {}, "f", problems=problems)
    except BadSpec as error:
        assert error.problems
        assert all(each.text for each in error.problems)


@given(st.sampled_from(paths(SOUND)), nonsense)
@settings(max_examples=300)
def test_a_sound_spec_damaged_anywhere_is_planned_or_refused(path: tuple[Any, ...], value: object) -> None:
    planned_or_refused(damaged(SOUND, path, value))


@given(nonsense)
@settings(max_examples=150)
@example({"name": "x", "steps": [{}]})
def test_nonsense_is_refused_with_reasons(value: object) -> None:
    planned_or_refused(value)


@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.text(max_size=8))
@settings(max_examples=150)
def test_a_damaged_file_is_read_or_refused(tmp_path_factory: Any, at: int, gone: int, put: str) -> None:
    file: Path = tmp_path_factory.mktemp("fuzz") / "spec.yaml"
    file.write_text(TEXT[:at] + put + TEXT[at + gone :], encoding="utf-8", errors="surrogatepass")
    try:
        load_spec(file)
    except BadSpec as error:
        assert str(error)
