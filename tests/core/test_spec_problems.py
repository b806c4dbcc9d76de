"""Bad specs: each is refused whole, with the place and what was expected; every fault is reported at once."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.spec.plan import plan_spec
from buoy.core.spec.problems import Problems
from buoy.core.spec.reader import read_spec
from buoy.errors import BadInput, BadSpec

RUN: dict[str, Any] = {"run": "true"}


def steps(*made: Any, **top: Any) -> dict[str, Any]:
    return {"name": "x", "steps": list(made), **top}


def step(id: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": id, **({} if {"call", "ask", "modules", "run"} & set(more) else RUN), **more}


def action(**more: Any) -> dict[str, Any]:
    return {"trigger": "on_workflow_start", "kind": "run_commands", "commands": ["true"], **more}


def complaints(data: object) -> list[str]:
    problems = Problems()
    try:
        spec = read_spec(data, problems)
        if spec is None or not spec.steps:
            problems.check("f", lambda place: None)
        assert spec is not None
        plan_spec(spec, {}, "f", problems=problems)
    except BadSpec as error:
        return [f"{each.place}: {each.text}" for each in error.problems]
    return []


BAD: list[tuple[object, str]] = [
    # the whole
    (None, "the spec: expected a map with name and steps, found nothing"),
    ([1], "the spec: expected a map with name and steps, found a list of 1"),
    ({"steps": [step()]}, "name: expected a name, found nothing"),
    ({"name": "a b", "steps": [step()]}, "name: spec name 'a b' is not allowed"),
    ({"name": "x"}, "steps: expected a list of at least one step, found nothing"),
    ({"name": "x", "steps": {}}, "steps: expected a list of at least one step, found a map"),
    (steps(step(), stesp=1), "stesp: unknown key; did you mean 'steps'?"),
    (steps(step(), recovery="maybe"), "recovery: expected one of resume, restart, fail, hold; found 'maybe'"),
    (steps(step(), max_parallel=0), "max_parallel: expected a whole number from 1 to 1000, found 0"),
    (steps(step(), queue="a b"), "queue: queue name 'a b' is not allowed"),
    (steps(step(), combine="mix"), "combine: expected one of product, zip; found 'mix'"),
    # steps
    (steps("a"), "steps[0]: expected a map with id and one of call, run, ask, modules; found 'a'"),
    (steps({"id": "a"}), "steps[0]: expected exactly one of call, run, ask, modules; found none of them"),
    (steps({"id": "a", "run": "x", "call": "a:b"}), "steps[0]: expected exactly one of call, run, ask, modules"),
    (steps({"run": "x"}), "steps[0].id: expected a text, found nothing"),
    (steps(step("a.b")), "steps[0].id: step id 'a.b' is not allowed"),
    (steps(step("1a")), "steps[0].id: step id '1a' is not allowed"),
    (steps(step("a" * 200)), "is not allowed"),
    (steps(step("a"), step("a")), "steps[1].id: step 'a' is there twice"),
    (steps(step(neds=[])), "steps[0].neds: unknown key; did you mean 'needs'?"),
    (steps(step(run="")), "steps[0].run: expected a text, found ''"),
    (steps(step(run=["ls"])), "steps[0].run: expected a text, found a list of 1"),
    (steps(step(run="a\0b")), "steps[0].run: expected a text"),
    (steps(step(call="os")), "steps[0].call: expected 'package.module:function', found 'os'"),
    (steps(step(retries=-1)), "steps[0].retries: expected a whole number from 0 to 1000, found -1"),
    (steps(step(retries=True)), "steps[0].retries: expected a whole number"),
    (steps(step(timeout="soon")), "steps[0].timeout: timeout 'soon' is not a duration"),
    (steps(step(timeout=0)), "steps[0].timeout: expected more than nothing"),
    (steps(step(backoff="-1s")), "steps[0].backoff: backoff '-1s' is not a duration"),
    (steps(step(supports_termination="yes")), "steps[0].supports_termination: expected true or false"),
    (steps(step(**{"with": [1]})), "steps[0].with: expected a map of inputs by name, found a list of 1"),
    (steps(step(**{"with": {"a-b": 1}})), "steps[0].with.a-b: 'a-b' is no name for an input"),
    # modules
    (steps(step(modules=[])), "steps[0].modules: expected a list of at least one module"),
    (steps(step(modules=["x"])), "steps[0].modules[0]: expected a map with id and one of call, run, ask; found 'x'"),
    (steps(step(modules=[{"id": "m"}])), "steps[0].modules[0]: expected exactly one of call, run, ask; found none"),
    (steps(step(modules=[step("m"), step("m")])), "steps[0].modules[1].id: module 'm' is there twice"),
    (steps(step(modules=[step("m.n")])), "steps[0].modules[0].id: module id 'm.n' is not allowed"),
    (steps(step(modules=[step("m", needs=["x"])])), "steps[0].modules[0].needs: unknown key"),
    (steps(step(modules=[step("m")], **{"with": {}})), "steps[0].with: a step with modules has no 'with' of its own"),
    (steps(step(modules=[step("m")], run="x")), "steps[0].run: a step with modules has no 'run' of its own"),
    # questions
    (steps(step(ask={})), "steps[0].ask.title: expected a text, found nothing"),
    (steps(step(ask=5)), "steps[0].ask: expected a map with a title, found 5"),
    (steps(step(ask={"title": "t", "kind": "choose"})), "steps[0].ask: a question of kind 'choose' needs options"),
    (steps(step(ask={"title": "t", "kind": "dance"})), "steps[0].ask.kind: expected one of text, confirm"),
    (steps(step(ask={"title": "t", "options": [True]})), "steps[0].ask.options[0]: expected a text, found True"),
    (
        steps(step(ask={"title": "t", "options": "{{ steps.none }}"})),
        "steps[0].ask.options[0]: there is no step 'none'",
    ),
    (steps(step(ask={"title": "t", "schema": {"type": 5}})), "steps[0].ask: the schema of question 't'"),
    (steps(step(ask="t", **{"with": {"a": 1}})), "steps[0].with: a question takes no inputs"),
    # resources
    (steps(step(resources=5)), "steps[0].resources: expected a map with cpus, memory, gpus, nodes, time"),
    (steps(step(resources={"cpu": 5})), "steps[0].resources.cpu: unknown key; did you mean 'cpus'?"),
    (steps(step(resources={"cpus": 0})), "steps[0].resources.cpus: expected a whole number from 1"),
    (steps(step(resources={"gpus": -1})), "steps[0].resources.gpus: expected a whole number from 0"),
    (steps(step(resources={"memory": "lots"})), "steps[0].resources.memory: expected a size such as 512MiB"),
    (steps(step(resources={"memory": 0})), "steps[0].resources.memory: expected a size"),
    (steps(step(resources={"time": "1 year"})), "steps[0].resources.time: time '1 year' is not a duration"),
    # parameters
    (steps(step(), parameters=[1]), "parameters: expected a map of parameters by name"),
    (steps(step(), parameters={"a-b": 1}), "parameters.a-b: 'a-b' is no name for a parameter"),
    (steps(step(), parameters={"k": []}), "parameters.k: expected at least one value"),
    (steps(step(), parameters={"k": {}}), "parameters.k: expected a text, a number, true or false"),
    (steps(step(), parameters={"k": [1, 1]}), "parameters.k: the same value is there twice"),
    (steps(step(), parameters={"k": "3:1"}), "parameters.k: range '3:1' is empty"),
    (steps(step(), parameters={"k": "1:9:0"}), "parameters.k: range '1:9:0' is empty"),
    (steps(step(), parameters={"k": "1:99999999"}), "parameters.k: range '1:99999999' has 99,999,999 values"),
    (steps(step(), parameters={"directory": ["a", "b"]}), "parameters.directory: expected one folder"),
    (steps(step("a_{k}")), "steps[0].id: there is no parameter 'k'"),
    (steps(step(run="echo {k}")), "steps[0].run: there is no parameter 'k'"),
    (steps(step(run="{k}"), parameters={"k": "1:2"}), "steps[0].run: {k} has several values"),
    (steps(step("a_{k}"), parameters={"k": "1:100001"}), "the limit is 100,000"),
    (steps(step("a_{k}"), parameters={"k": ["a b", "c"]}), "steps[0].id: step id 'a_a b' is not allowed"),
    (
        steps(step("a_{j}_{k}"), parameters={"j": "1:2", "k": "1:3"}, combine="zip"),
        "combine: zip wants parameters of the same number of values: j has 2, k has 3",
    ),
    # templates and references
    (steps(step(run="{{ steps.a ")), "steps[0].run: '{{' without '}}'"),
    (steps(step(run="{{ gather }}")), "steps[0].run: reference 'gather' is not known: expected steps.ID"),
    (steps(step(run="{{ steps }}")), "steps[0].run: reference 'steps' is not known"),
    (steps(step(run="{{ steps.a b }}")), "has a part that is no name"),
    (steps(step(run="{{ run.name }}")), "a run has only run.id"),
    (steps(step(run="{{ steps.b }}")), "steps[0].run: there is no step 'b'"),
    (steps(step(run="{{ modules.m }}")), "steps[0].run: no module 'm' comes before this one"),
    (
        steps(step(modules=[step("m", run="{{ modules.n }}"), step("n")])),
        "steps[0].modules[0].run: no module 'n' comes before this one in step 'a'",
    ),
    (steps(step("{{ steps.b }}")), "steps[0].id: an id may hold parameters, but no references"),
    (steps(step(inputs=["{{ steps.a }}"])), "steps[0].inputs[0]: a file name may hold parameters, but no references"),
    (steps(step(), result="{{ steps.zz }}"), "result: there is no step 'zz'"),
    (steps(step(), result="{q}"), "result: there is no parameter 'q'"),
    # conditions
    (steps(step(when="1 +")), "steps[0].when: condition '1 +': '+' has no meaning there"),
    (steps(step(when="a.b == 1")), "steps[0].when: reference 'a.b' is not known"),
    (steps(step(when="steps.zz == 1")), "steps[0].when: there is no step 'zz'"),
    (steps(step(when=5)), "steps[0].when: expected a text, found 5"),
    (steps(step(when="(" * 40 + "true" + ")" * 40)), "nested too deeply"),
    (steps(step(when="parameters.q")), "steps[0].when: there is no parameter 'q'"),
    (steps(step(when="modules.m == 1")), "steps[0].when: "),
    # the graph
    (steps(step(needs=["b"])), "steps[0].needs[0]: there is no step 'b'"),
    (steps(step(needs="bb"), step("b")), "steps[0].needs[0]: there is no step 'bb'; did you mean 'b'?"),
    (steps(step(needs=[5])), "steps[0].needs[0]: expected a text, found 5"),
    (steps(step(needs=["a"])), "steps[0]: a cycle: a needs a"),
    (
        steps(step("a", needs=["c"]), step("b", needs=["a"]), step("c", needs=["b"])),
        "a cycle: a needs c needs b needs a",
    ),
    (steps(step(run="{{ steps.b }}"), step("b", needs=["a"])), "a cycle: a needs b needs a"),
    (steps(step("a", outputs=["f"]), step("b", outputs=["f"])), "file 'f' is made by two steps: a and b"),
    (steps(step("a", inputs=["f"], outputs=["g"]), step("b", inputs=["g"], outputs=["f"])), "a cycle: a needs b"),
    # actions
    (steps(step(), actions={}), "actions: expected a list of actions, found a map"),
    (steps(step(), actions=["x"]), "actions[0]: expected a map with trigger and kind, found 'x'"),
    (steps(step(), actions=[{"kind": "run_commands", "commands": ["x"]}]), "actions[0].trigger: expected one of"),
    (steps(step(), actions=[action(kind="x")]), "actions[0].kind: expected one of"),
    (steps(step(), actions=[action(trigger="at_noon")]), "actions[0].trigger: expected one of"),
    (steps(step(), actions=[action(commands=[])]), "actions[0].commands: expected a list of at least one command"),
    (steps(step(), actions=[action(commands=[5])]), "actions[0].commands[0]: expected a text, found 5"),
    (steps(step(), actions=[action(commands=None, kind="schedule_nodes")]), "actions[0].commands: only an action of"),
    (steps(step(), actions=[{"trigger": "on_jobs_ready", "kind": "run_commands"}]), "run_commands needs commands"),
    (steps(step(), actions=[action(walltime="1h")]), "actions[0].walltime: only an action of the kind schedule_nodes"),
    (steps(step(), actions=[action(jobs=["a"])]), "actions[0].jobs: on_workflow_start is about the whole run"),
    (
        steps(step(), actions=[{"trigger": "on_workflow_complete", "kind": "schedule_nodes"}]),
        "actions[0].trigger: a run that ended needs no nodes",
    ),
    (steps(step(), actions=[action(trigger="on_jobs_ready", jobs=["b"])]), "actions[0].jobs[0]: there is no step 'b'"),
    (steps(step(), actions=[action(trigger="on_jobs_ready", jobs=["{k}"])]), "jobs[0]: there is no parameter 'k'"),
    (steps(step(), actions=[action()] * 101), "actions: expected at most 100 actions, found 101"),
]


@pytest.mark.parametrize(("data", "expected"), BAD, ids=[f"{n}-{text[:40]}" for n, (_, text) in enumerate(BAD)])
def test_a_bad_spec_is_refused_with_its_place(data: object, expected: str) -> None:
    found = complaints(data)
    assert any(expected in each for each in found), found


def test_everything_that_is_wrong_is_told_at_once() -> None:
    data = steps(step("a", needs=["zz"], retries=-1), step("a", run="{q}"), recovery="x", parameters={"k": "3:1"})
    assert len(complaints(data)) == 6


def test_very_many_problems_are_counted_and_cut() -> None:
    problems = Problems()
    read_spec(steps(*(step(f"s{n}", retries=-1) for n in range(500))), problems)
    with pytest.raises(BadSpec) as caught:
        problems.check("f.yaml", lambda place: 7)
    assert caught.value.count == 500
    assert len(caught.value.problems) == 50
    assert str(caught.value).endswith("and 450 more")
    assert str(caught.value).startswith("f.yaml:7: steps[0].retries: ")


def test_parameters_at_the_start_must_be_those_of_the_spec() -> None:
    spec = read_spec(steps(step("a_{k}"), parameters={"k": "1:2"}), Problems())
    assert spec is not None
    with pytest.raises(BadInput, match="x has no parameter 'j'; known: k, directory"):
        plan_spec(spec, {"j": 1})
    with pytest.raises(BadInput, match="parameter 'k': range '5:1' is empty"):
        plan_spec(spec, {"k": "5:1"})
