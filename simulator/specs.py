"""Specs: small random graphs of steps with modules, questions and calls, as programs and as specs of Buoy.

A program `spec` has a node for each step: `call`, `ask`, `kill`, or `modules` with nodes of these kinds. `name` has the
steps that it needs, and that of the spec its policy. Its result is known without running it, as that of all programs.
Absent on purpose: commands. A simulated process has no shell.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from buoy.core.spec.problems import Problems, no_lines
from buoy.core.spec.reader import read_spec
from buoy.engine.spec.workflow import SpecWorkflow
from simulator.programs import RETRIES, Node
from simulator.steps import called, called_deadly, called_sync

# The module whose functions simulated workers may call for specs.
CALLS = (called.__module__,)


def make_graph(rng: Random, name: str) -> Node:
    """A program of one to five steps."""
    steps: list[Node] = []
    for number in range(1, rng.randint(2, 6)):
        needs = ",".join(each.id for each in steps if rng.random() < 0.5)
        kind = rng.choice(("call", "call", "ask", "modules"))
        if kind == "modules":
            modules = tuple(_action(rng, f"m{number}{place}", "") for place in range(1, rng.randint(2, 4)))
            steps.append(Node("modules", f"s{number}", modules, name=needs))
        else:
            steps.append(_action(rng, f"s{number}", needs, kind))
    return Node("spec", name, tuple(steps))


def _action(rng: Random, id: str, needs: str, kind: str | None = None) -> Node:
    if (kind or rng.choice(("call", "call", "ask"))) == "ask":
        return Node("ask", id, answer=rng.choice(("red", "green", "any text")), name=needs)
    takes_s = rng.choice((0.0, 0.1, 2.0, 6.0))
    fails = 0 if takes_s else rng.choice((0, 0, 1, RETRIES + 1))
    return Node("call", id, takes_s=takes_s, fails=fails, name=needs)


def workflow_of(program: Node) -> SpecWorkflow:
    """The spec that such a program stands for."""
    problems = Problems()
    plain = [step.id for step in program.kids if step.op != "modules"]
    data = {
        "name": program.id,
        **({"recovery": program.name} if program.name else {}),
        "steps": [_step(step, plain) for step in program.kids],
        "result": {name: f"{{{{ steps.{name} }}}}" for name in plain},
    }
    spec = read_spec(data, problems)
    problems.check(program.id, no_lines)
    assert spec is not None
    return SpecWorkflow(spec)


def _step(step: Node, plain: list[str]) -> dict[str, Any]:
    needs = [each for each in step.name.split(",") if each]
    given = [f"{{{{ steps.{each} }}}}" for each in needs if each in plain]
    if step.op == "modules":
        return {"id": step.id, "needs": needs, "modules": [_work(each, []) for each in step.kids]}
    return {**_work(step, given), "needs": needs}


def _work(node: Node, given: list[str]) -> dict[str, Any]:
    if node.op == "ask":
        options = {"options": ["red", "green"]} if node.answer in ("red", "green") else {}
        return {"id": node.id, "ask": {"title": node.id, **options}}
    inputs: dict[str, Any] = {"id": node.id, "given": given}
    if node.op == "kill":
        function: Callable[..., Any] = called_deadly
        inputs["kills"] = node.fails
    else:
        function = called if node.takes_s else called_sync
        inputs.update({"takes_s": node.takes_s} if node.takes_s else {"fails": node.fails})
    call = f"{function.__module__}:{function.__name__}"
    return {"id": node.id, "call": call, "with": inputs, "retries": RETRIES, "backoff": 0.3}
