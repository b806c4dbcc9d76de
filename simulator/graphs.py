"""Graphs: a spec does its steps in the order of its graph, and all of them that it can.

Pure, as `invariants`. What needs what is read from the program, and not from the engine's plan of the spec.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence
from simulator.programs import Node
from simulator.reading import parts_of, walked


def specs_follow_their_graph(found: Evidence) -> Iterator[str]:
    """No step begins before all that it needs is completed, no module before the one above it; none is left out."""
    if found.program.op != "spec":
        return
    before = _before(found.program)
    for event, seen in walked(found.log):
        body = event.body
        if isinstance(body, e.StepStarted | e.ModuleStarted):
            ended = _outcomes(seen)
            early = [name for name in before.get(_place(body.leaf), ()) if ended.get(name) != "completed"]
            if early:
                yield f"event {event.seq} begins {body.leaf}, and {early} are not completed"
        elif isinstance(body, e.WorkflowCompleted | e.WorkflowFailed) and not _refused(body):
            yield from _left_out(found.program, event, _outcomes(seen))


def _before(program: Node) -> dict[str, list[str]]:
    """By the place of each step and module: what has to be completed before it begins."""
    found: dict[str, list[str]] = {}
    for step in program.kids:
        found[step.id] = [name for name in step.name.split(",") if name]
        for place, module in enumerate(step.kids):
            found[f"{step.id}/{module.id}"] = [f"{step.id}/{step.kids[place - 1].id}"] if place else found[step.id]
    return found


def _place(leaf: str) -> str:
    return leaf.rpartition("#")[0]


def _outcomes(seen: list[e.Event]) -> dict[str, str]:
    return {_place(leaf): part.outcome for leaf, part in parts_of(seen).items()}


def _refused(body: e.Body) -> bool:
    """Whether it failed because its process died, as its policy is: then it ends where it stood."""
    return isinstance(body, e.WorkflowFailed) and body.error.type == "RecoveryRefused"


def _left_out(program: Node, event: e.Event, ended: dict[str, str]) -> Iterator[str]:
    """The failure of one step keeps back those that need it, and no other."""
    done = {step.id for step in program.kids if ended.get(step.id) in ("completed", "failed")}
    for step in program.kids:
        ready = all(ended.get(name) == "completed" for name in step.name.split(",") if name)
        if ready and step.id not in done:
            yield f"event {event.seq}: it ends ({event.type}), and {step.id} is {ended.get(step.id, 'not begun')}"


GRAPHS: dict[str, Check] = {"specs follow their graph": specs_follow_their_graph}
