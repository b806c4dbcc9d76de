"""What a document says wrongly, in one line."""

from __future__ import annotations

import msgspec
import pytest

from buoy.core.diagnosis.document_drift import difference
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import OpenLeaf, document
from buoy.core.log.state import fold

RUN = RunId("run-1")
RIGHT = document(fold(RUN, [e.Event(1, 1.0, e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"[]")))]))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"status": "running"}, "its document says status = running, its log says pending"),
        ({"queue": "slow"}, "its document says queue = slow, its log says default"),
        ({"version": "\n"}, "its document says version = nothing, its log says nothing"),
        ({"version": "a\r\n\tb"}, "its document says version = a b, its log says nothing"),
    ],
)
def test_the_first_difference_is_told_in_one_line(wrong: dict[str, str], text: str) -> None:
    assert difference(msgspec.structs.replace(RIGHT, **wrong), RIGHT) == text


def test_a_document_that_is_right_or_only_behind_says_nothing_wrong() -> None:
    assert difference(RIGHT, RIGHT) is None
    assert difference(RIGHT, msgspec.structs.replace(RIGHT, head_seq=2, queue="slow")) is None


def test_a_long_value_is_cut() -> None:
    told = difference(msgspec.structs.replace(RIGHT, queue="x" * 500), RIGHT)
    assert told is not None and len(told) < 200 and "..." in told


def test_parts_that_read_the_same_are_told_by_the_field_that_differs() -> None:
    open_leaf = OpenLeaf(LeafId("signal:go#1"), "signal", "go", since=1.0)
    folded = msgspec.structs.replace(RIGHT, open=(open_leaf,), open_count=1)
    stored = msgspec.structs.replace(folded, open=(msgspec.structs.replace(open_leaf, name="stop"),))
    told = difference(stored, folded)
    assert told == "its document says what is open = signal:go#1: name stop, its log says name go"
