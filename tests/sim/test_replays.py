"""A replay of a whole log gives the same end; a log that was tampered with does not."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from simulator.kernel import Kernel
from simulator.programs import Node, expected, make_program, parts, without
from simulator.replays import replay_differences
from simulator.specs import make_graph, workflow_of
from simulator.workflows import FIRST, MORE, Release

from buoy.core.ids import LeafId
from buoy.core.log import events as e

RUN_ASYNC = Release(FIRST).run_async
PROGRAM = Node("seq", "main", (Node("sync", "n1"),))


def _log(leaf: str = "work_sync#1", result: str = "n1") -> list[e.Event]:
    bodies: list[e.Body] = [
        e.WorkflowCreated(
            workflow="sim_async",
            input=msgspec.Raw(msgspec.json.encode({"program": PROGRAM})),
            version=RUN_ASYNC.version,
        ),
        e.Claimed(runner="w1", cause="created"),
        e.StepStarted(
            leaf=LeafId(leaf),
            name="work_sync",
            key=f"run-1/{leaf}/0",
            args=msgspec.Raw(b'{"id":"n1","fails":0,"given":[]}'),
        ),
        e.StepCompleted(leaf=LeafId(leaf), result=msgspec.Raw(msgspec.json.encode(result))),
        e.WorkflowCompleted(result=msgspec.Raw(msgspec.json.encode(["n1"]))),
    ]
    nonces = ("c1", None, None, "c2", None)
    return [
        e.Event(number, 100.0, body, nonce=nonce)
        for number, (body, nonce) in enumerate(zip(bodies, nonces, strict=True), 1)
    ]


def _differences(log: list[e.Event]) -> list[str]:
    return list(replay_differences("run-1", log, RUN_ASYNC, Random(1), Kernel("replay", 1_000)))


def test_a_log_leads_its_code_to_the_end_that_it_has() -> None:
    assert _differences(_log()) == []


def test_another_end_than_the_log_has_is_noticed() -> None:
    assert "replayed it does not end with" in _differences(_log(result="else"))[0]


def test_a_leaf_that_the_code_does_not_ask_for_is_noticed() -> None:
    assert "it diverges" in _differences(_log(leaf="work_sync#7"))[0]


@pytest.mark.parametrize("is_async", [True, False])
def test_programs_are_made_of_all_their_forms(is_async: bool) -> None:
    rng = Random(1)
    made = [make_program(rng, is_async=is_async, size=8) for _ in range(200)]
    found = {node.op for program in made for node in parts(program)}
    assert {"seq", "step", "sync", "derive", "sleep", "ask", "signal", "signal_or", "book", "child", "errand"} <= found
    assert any(program.again for program in made)
    assert (found >= {"gather", "group", "completed", "first", "rest", "cleanup", "race", "hurry"}) == is_async


def test_the_later_release_does_more_and_has_another_version() -> None:
    later = Release(MORE).run_async
    assert later.name == RUN_ASYNC.name
    assert later.version != RUN_ASYNC.version


def test_graphs_are_specs_that_buoy_takes() -> None:
    graphs = [make_graph(Random(seed), f"graph-{seed}") for seed in range(60)]
    for graph in graphs:
        workflow = workflow_of(graph)
        workflow.arguments.decode(workflow.arguments.encode((), {"directory": "."}))
    assert {part.op for graph in graphs for part in parts(graph)} == {"spec", "call", "ask", "modules"}


def test_a_program_without_some_of_its_parts_is_a_program() -> None:
    program = make_program(Random(3), is_async=True, size=9)
    names = {f"run-1/{part.id}" for part in parts(program)[1:]}
    for name in sorted(names):
        left = without(program, {name}, "run-1")
        assert len(parts(left)) < len(parts(program))
    assert parts(without(program, names, "run-1"))[1:] == []


def test_the_result_of_a_program_is_known_without_running_it() -> None:
    kids = (Node("step", "a"), Node("step", "b", fails=9), Node("race", "c", takes_s=1.0, limit_s=0.5))
    assert expected(Node("seq", "main", (Node("gather", "g", kids), Node("signal", "d", name="go")))) == [
        ["a", "b failed", "late"],
        "go",
    ]
