"""The weight of a commit: near enough to its bytes that groups can be capped by it."""

from __future__ import annotations

import msgspec
import pytest

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.codec import encode_events
from buoy.core.log.questions import Question
from buoy.core.log.weight import LARGE, weight

BIG = msgspec.Raw(b'"' + b"x" * 100_000 + b'"')
LEAF = LeafId("a#1")
CREATED = e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}"))


def test_every_payload_is_weighed() -> None:
    with_payload = {
        body for body in e.BODIES if any(field.type is msgspec.Raw for field in msgspec.structs.fields(body))
    }
    assert with_payload <= set(LARGE)


@pytest.mark.parametrize(
    "body",
    [
        e.StepStarted(leaf=LEAF, name="a", key="k", args=BIG),
        e.ModuleStarted(leaf=LEAF, step="a", module="m", args=BIG),
        e.InteractionRequested(leaf=LEAF, question_id="q", question=Question("Go?", detail="x" * 100_000)),
        e.ChildStarted(leaf=LEAF, child=RunId("c"), workflow="w", input=BIG),
        e.WorkflowCompleted(result=BIG),
        e.BranchCreated(
            branch=BranchId(1),
            parent=BranchId(0),
            cutoff_seq=0,
            dropped=tuple(LeafId(f"part-{n}/step-of-some-length-{n}#1") for n in range(3_000)),
        ),
    ],
    ids=lambda body: type(body).__name__,
)
def test_what_is_large_weighs_about_its_bytes(body: e.Body) -> None:
    small = append(RunId("r"), (), [CREATED, e.Claimed(runner="x", cause="created")], 1.0, "n")
    large = append(RunId("r"), small.events, [body], 1.0, "n")
    stored = len(encode_events(large.events)) + len(msgspec.json.encode(large.document))
    assert weight(small.events, small.document) < 2_000
    assert stored / 2 < weight(large.events, large.document) < stored * 2


def test_an_open_question_weighs_in_every_later_commit() -> None:
    asked = e.InteractionRequested(leaf=LEAF, question_id="q", question=Question("Go?", detail="x" * 100_000))
    first = append(RunId("r"), (), [CREATED, e.Claimed(runner="x", cause="created"), asked], 1.0, "n")
    later = append(RunId("r"), first.events, [e.StepStarted(leaf=LeafId("b#1"), name="b", key="k")], 1.0, "m")
    assert weight(later.events, later.document) > 100_000
