"""Plans: what a sound spec amounts to, with its parameters, its files and its references."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from buoy.core.spec.model import Spec, from_stored, spec_hash, stored_form
from buoy.core.spec.plan import SpecPlan, plan_spec
from buoy.core.spec.problems import Problems
from buoy.core.spec.reader import read_spec
from buoy.core.spec.scope import scope_of
from buoy.core.spec.values import memory_bytes, parameter
from buoy.errors import BadInput, BadSpec, CorruptLog


def spec_of(**data: Any) -> Spec:
    problems = Problems()
    spec = read_spec({"name": "x", **data}, problems)
    assert problems.found == []
    assert spec is not None
    return spec


def plan_of(given: dict[str, object] | None = None, **data: Any) -> SpecPlan:
    return plan_spec(spec_of(**data), given or {})


def edges(plan: SpecPlan) -> dict[str, list[str]]:
    return {each.id: [plan.steps[n].id for n in plan.needs[node]] for node, each in enumerate(plan.steps)}


def run(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "run": "true", **more}


def test_a_list_without_needs_runs_in_order() -> None:
    assert edges(plan_of(steps=[run("a"), run("b"), run("c")])) == {"a": [], "b": ["a"], "c": ["b"]}


def test_a_list_with_parameters_waits_for_the_whole_group_before() -> None:
    plan = plan_of(parameters={"k": "1:2"}, steps=[run("a"), run("b_{k}"), run("c")])
    assert edges(plan) == {"a": [], "b_1": ["a"], "b_2": ["a"], "c": ["b_1", "b_2"]}


def test_one_needs_anywhere_ends_the_order_of_the_list() -> None:
    assert edges(plan_of(steps=[run("a"), run("b"), run("c", needs=["a"])])) == {"a": [], "b": [], "c": ["a"]}
    assert edges(plan_of(steps=[run("a", needs=[]), run("b")])) == {"a": [], "b": []}


def test_a_bound_parameter_means_the_same_and_a_free_one_all() -> None:
    steps = [run("t_{k}", needs=[]), run("e_{k}", needs=["t_{k}"]), run("r", needs=["e_{k}"])]
    plan = plan_of(parameters={"k": "1:2"}, steps=steps)
    assert edges(plan) == {"t_1": [], "t_2": [], "e_1": ["t_1"], "e_2": ["t_2"], "r": ["e_1", "e_2"]}


def test_two_parameters_are_combined_each_with_each() -> None:
    plan = plan_of(
        parameters={"a": [1, 2], "b": ["x", "y"]}, steps=[run("s_{a}_{b}", needs=[]), run("t_{a}", needs=["s_{a}_{b}"])]
    )
    assert edges(plan)["t_2"] == ["s_2_x", "s_2_y"]
    assert [each.id for each in plan.steps[:4]] == ["s_1_x", "s_1_y", "s_2_x", "s_2_y"]


def test_zipped_parameters_move_together() -> None:
    plan = plan_of(parameters={"a": [1, 2], "b": ["x", "y"]}, combine="zip", steps=[run("s_{a}", run="{b}"), run("t")])
    assert [each.bound["b"] for each in plan.steps[:2]] == ["x", "y"]
    assert edges(plan)["t"] == ["s_1", "s_2"]


def test_files_make_edges() -> None:
    steps = [
        run("sum", inputs=["out_{k}.csv"], outputs=["sum.csv"]),
        run("make_{k}", outputs=["out_{k}.csv"]),
        run("show", inputs=["sum.csv", "given.txt"]),
    ]
    plan = plan_of(parameters={"k": "1:2"}, steps=steps)
    assert edges(plan) == {"sum": ["make_1", "make_2"], "make_1": [], "make_2": [], "show": ["sum"]}
    assert list(plan.outside) == ["given.txt"]


def test_references_make_edges_wherever_they_stand() -> None:
    steps = [
        run("a", needs=[]),
        run("b", needs=[], run="{{ steps.a.x }}"),
        run("c", needs=[], **{"with": {"v": [{"deep": "{{ steps.b }}"}]}}),
        run("d", needs=[], when="steps.c == 1"),
        {"id": "e", "needs": [], "ask": {"title": "{{ steps.d.y }}?"}},
        {"id": "f", "needs": [], "modules": [run("m", run="{{ steps.e }}")]},
    ]
    plan = plan_of(steps=steps)
    assert edges(plan) == {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["d"], "f": ["e"]}
    assert plan.referred == {"a", "b", "c", "d", "e"}


def test_descendants_of_forty_diamonds_are_found_at_once() -> None:
    steps = [run("d0", needs=[])]
    for n in range(1, 41):
        steps += [
            run(f"l{n}", needs=[f"d{n - 1}"]),
            run(f"r{n}", needs=[f"d{n - 1}"]),
            run(f"d{n}", needs=[f"l{n}", f"r{n}"]),
        ]
    plan = plan_of(steps=steps)
    assert len(plan.descendants(["d0"])) == 120
    assert plan.descendants(["l40"]) == {"d40"}


def test_a_hundred_thousand_values_make_a_plan_in_order() -> None:
    plan = plan_of(parameters={"k": "1:50000"}, steps=[run("a_{k}", needs=[]), run("b_{k:06}", needs=["a_{k}"])])
    assert len(plan.steps) == 100_000
    assert plan.steps[-1].id == "b_050000"


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("1:3", (1, 2, 3)),
        ("3:1:-1", (3, 2, 1)),
        ("0:1:0.5", (0.0, 0.5, 1.0)),
        ("-1:1", (-1, 0, 1)),
        (7, (7,)),
        ("a:b", ("a:b",)),
        (["1:3"], ("1:3",)),
        ([True, 1.5, "x"], (True, 1.5, "x")),
    ],
)
def test_what_values_a_parameter_has(written: object, values: tuple[object, ...]) -> None:
    assert parameter("k", written).values == values


@pytest.mark.parametrize(
    ("text", "size"), [("16GiB", 2**34), ("1.5k", 1500), ("2M", 2_000_000), ("3 gb", 3 * 10**9), (5, 5)]
)
def test_sizes_of_memory(text: object, size: int) -> None:
    assert memory_bytes(text) == size


def test_layout_and_order_of_keys_do_not_change_the_version() -> None:
    one = spec_of(steps=[{"id": "a", "run": "x", "retries": 1, "with": {"p": 1, "q": 2}}])
    other = spec_of(steps=[{"with": {"q": 2, "p": 1}, "retries": 1, "run": "x", "id": "a"}])
    assert stored_form(one) == stored_form(other)
    assert spec_hash(stored_form(one)) != spec_hash(stored_form(spec_of(steps=[run("a", run="y")])))


def test_the_order_of_parameters_does() -> None:
    steps = [run("s_{a}_{b}")]
    one = spec_of(parameters={"a": "1:2", "b": "1:2"}, steps=steps)
    other = spec_of(parameters={"b": "1:2", "a": "1:2"}, steps=steps)
    assert stored_form(one) != stored_form(other)


def test_a_stored_spec_is_read_back_the_same_and_a_damaged_one_refused() -> None:
    spec = spec_of(
        parameters={"k": "1:3"},
        steps=[
            {"id": "a", "ask": {"title": "t", "options": ["yes", "no"]}, "resources": {"memory": "1GiB"}, "needs": []},
            {"id": "b_{k}", "modules": [{"id": "m", "call": "a:b", "with": {"x": [1, {"y": None}]}}], "when": "true"},
        ],
        result={"r": "{{ steps.a }}"},
    )
    stored = stored_form(spec)
    assert from_stored(stored, spec_hash(stored)) == spec
    with pytest.raises(CorruptLog, match="is damaged"):
        from_stored(stored + b" ", spec_hash(stored))


def scope(plan: SpecPlan, step: str, results: dict[str, Any], modules: dict[str, Any] | None = None) -> Any:
    return scope_of(plan, plan.steps[plan.index[step]], "run-1", results, modules)


def test_references_are_filled_in_with_their_types() -> None:
    plan = plan_of(
        parameters={"k": "1:2", "one": 5},
        steps=[
            run("t_{k}", needs=[]),
            run("s", needs=[], **{"with": {
                "all": "{{ steps.t_{k}.score }}", "first": "{{ steps.t_1.score }}", "one": "{one}",
                "text": "{one} of {{ steps.t_1 }}", "id": "{{ run.id }}", "p": "{{ parameters.one }}",
                "plain": [1, None],
            }}),
        ],
    )  # fmt: skip
    found = scope(plan, "s", {"t_1": {"score": 0.5}, "t_2": {"score": [1]}})
    assert found.inputs(plan.spec.steps[1]) == {
        "all": [0.5, [1]], "first": 0.5, "one": 5, "text": '5 of {"score":0.5}', "id": "run-1", "p": 5,
        "plain": [1, None],
    }  # fmt: skip


def test_values_in_commands_go_into_variables_and_not_into_the_text() -> None:
    steps = [run("a", needs=[]), run("b", needs=[], run="echo {x} '{x}' {{ steps.a }} ${HOME} \\{x} '{print $1}'")]
    plan = plan_of(parameters={"x": "a b"}, steps=steps)
    command, variables = scope(plan, "b", {"a": "; rm -rf /"}).command(plan.spec.steps[1])
    first, second = '"${BUOY_VALUE_1}"', '"${BUOY_VALUE_2}"'
    assert command == f"echo {first} ''{first}'' {second} ${{HOME}} {{x}} '{{print $1}}'"
    assert variables == {"BUOY_VALUE_1": "a b", "BUOY_VALUE_2": "; rm -rf /"}


def test_a_reference_into_nothing_says_what_is_there() -> None:
    plan = plan_of(steps=[run("a"), run("b", **{"with": {"x": "{{ steps.a.rows.0 }}"}})])
    with pytest.raises(BadInput, match=r"steps.a has no 'rows': it has cols"):
        scope(plan, "b", {"a": {"cols": 1}}).inputs(plan.spec.steps[1])
    assert scope(plan, "b", {}).inputs(plan.spec.steps[1]) == {"x": None}, "a skipped step has no result"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"id": "a_{j}"}, {"id": "b_{k}", "needs": ["a_{j}"]}], r"needs\[0\]: 25,000,000 dependencies, the limit"),
        ([{"id": "a_{j}"}, {"id": "b_{k}"}], r"steps\[1\]: 25,000,000 dependencies, the limit"),
        ([{"id": "a_{j}", "needs": []}, {"id": "b_{k}", "run": "{{ steps.a_{j} }}"}], "25,000,000 dependencies"),
        ([{"id": "b_{k}", "inputs": ["in_{j}"]}], r"steps\[0\].inputs\[0\]: 25,000,000 dependencies"),
        ([{"id": "a_{j}_{k}"}], r"steps\[0\].id: the parameters make 25,000,000 steps or more, the limit is 100,000"),
        ([{"id": "c", "needs": []}, {"id": "a_{j}", "needs": ["c"] * 5000}], r"steps\[1\].needs: 25,000,000 dep"),
    ],
)  # fmt: skip
def test_too_many_are_counted_before_any_is_made(steps: list[dict[str, Any]], expected: str) -> None:
    """What is made is bounded, whatever a few lines multiply to: traced by memory, which no busy machine changes."""
    data = {"parameters": {"j": "1:5000", "k": "1:5000"}, "steps": [{"run": "true", **each} for each in steps]}
    tracemalloc.start()
    try:
        with pytest.raises(BadSpec, match=expected):
            plan_of(**data)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_a_result_of_too_many_steps_is_refused_at_once() -> None:
    with pytest.raises(BadSpec, match="result: a reference to more than 100,000 steps"):
        plan_of(parameters={"j": "1:5000", "k": "1:5000"}, steps=[run("a")], result="{{ steps.a_{j}_{k} }}")


@pytest.mark.parametrize("text", ["9" * 5000 + ":1", "1:" + "9" * 5000, "1:2:0." + "1" * 5000])
def test_a_range_of_endless_digits_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="has a number of more than 18 digits"):
        parameter("k", text)
