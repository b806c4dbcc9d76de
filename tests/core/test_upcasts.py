"""Upcasts: sentences of earlier versions become facts when they are read, and nothing else does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.codec import decode_events, encode_events


def stored(v: int | None = None, **body: Any) -> bytes:
    event = {"seq": 5, "at": 1.0, "body": body} | ({} if v is None else {"v": v})
    return msgspec.json.encode([event])


def read(v: int | None = None, **body: Any) -> Any:
    (event,) = decode_events(stored(v, **body))
    return event.body


def failed(message: str) -> Any:
    body = read(type="workflow_failed", error={"type": "ValueError", "message": message})
    assert body.error.message == message
    return body.cause_leaf, body.cause_child


BOUND = " (run is bound to 5b79, this is 3b3f)"


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        ("event 4 is the outcome of a#1, but the code asked for p.1/b#2 instead", ("a#1", "p.1/b#2", 4)),
        ("the log has a#1, but the code asked for b#1 instead", ("a#1", "b#1", None)),
        ("the log has a#1, but the code no longer asks for it", ("a#1", None, None)),
        ('a#1 was called with {"x": 1}, and the code now calls it with {"x": 2}', None),
    ],
)
def test_a_pause_of_version_one_names_the_tried_code_and_the_difference(text: str, difference: Any) -> None:
    expected = None if difference is None else e.Difference(*difference)
    old = read(type="paused", reason="version", detail=text + BOUND)
    assert old == e.Paused(reason="version", detail=text + BOUND, tried_version="3b3f", difference=expected)
    same = read(type="paused", reason="nondeterminism", detail=text)
    assert same == e.Paused(reason="nondeterminism", detail=text, difference=expected)


def test_a_pause_for_another_reason_is_left_as_it_is() -> None:
    text = f"the log has a#1, but the code asked for b#1 instead{BOUND}"
    assert read(type="paused", reason="user", detail=text) == e.Paused(reason="user", detail=text)
    assert read(type="paused", reason="version") == e.Paused(reason="version")


@pytest.mark.parametrize(
    ("message", "leaf", "child"),
    [
        ("data#1 failed: ValueError: no", "data#1", None),
        ("data#1 failed: ValueError: a#1 failed: too", "data#1", None),
        ("p.1/data#2 failed: E: x; book#1 could not be undone: E: y", "p.1/data#2", None),
        ("no order: pay#1 failed: Declined: no", "pay#1", None),
        ("its policy is fail; found: A4: pay#1 failed with an unknown error and nobody acted on it", "pay#1", None),
        ("child r.pay-1f failed: ValueError: data#1 failed: E: x", None, "r.pay-1f"),
        ("child r.pay-1f was cancelled", None, "r.pay-1f"),
        ("no place for salt", None, None),
        ("the file of data#1 is gone", None, None),
    ],
)
def test_a_failure_of_version_one_names_the_step_or_the_child(
    message: str, leaf: str | None, child: str | None
) -> None:
    assert failed(message) == (leaf, child)


def test_the_text_of_a_present_event_is_not_read() -> None:
    """Whatever a person or a library wrote there."""
    text = f"the log has a#1, but the code asked for b#1 instead{BOUND}"
    assert read(2, type="paused", reason="version", detail=text) == e.Paused(reason="version", detail=text)
    error = {"type": "E", "message": "data#1 failed: E: no"}
    assert read(2, type="workflow_failed", error=error) == e.WorkflowFailed(error=e.ErrorInfo(**error))


def test_what_is_written_now_is_read_back_and_keeps_its_facts() -> None:
    bodies: list[e.Body] = [
        e.Paused(reason="version", detail="no", tried_version="v2", difference=e.Difference(LeafId("a#1"), None, 4)),
        e.WorkflowFailed(error=e.ErrorInfo("E", "b#1 failed: E: no"), cause_leaf=LeafId("a#1")),
        e.WorkflowFailed(error=e.ErrorInfo("E", "no"), cause_child=RunId("r.c")),
    ]
    events = [e.Event(seq, 1.0, body) for seq, body in enumerate(bodies, 1)]
    data = encode_events(events)
    assert decode_events(data) == events and data.count(b'"v":2') == 3
