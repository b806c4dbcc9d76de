"""Only what can be read back is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoy.core.ids import LeafId
from buoy.core.limits import EVENT_BYTES_MAX, NESTING_MAX
from buoy.core.log import events as e
from buoy.core.log.codec import decode_events, encode, encode_events, nested_too_deeply
from buoy.core.log.questions import Question
from buoy.core.log.storable import check_body, storable_text
from buoy.errors import NotJson, TooLarge

LEAF = LeafId("charge#1")
LONE = "caf\udce9"


def asked(**fields: Any) -> e.InteractionRequested:
    return e.InteractionRequested(leaf=LEAF, question_id="r/ask#1/0", question=Question(**fields))


def failed(**fields: Any) -> e.StepFailed:
    return e.StepFailed(leaf=LEAF, error=e.ErrorInfo(**{"type": "ValueError", "message": "no", **fields}))


SOUND: list[e.Body] = [
    e.StepStarted(LEAF, "charge", 1, msgspec.Raw(b'{"order":"A-7","cents":1250}'), "r/charge#1/0"),
    e.StepCompleted(LEAF, msgspec.Raw(b' {"a": [1, 2]}')),
    e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}")),
    asked(title="Ship it?", kind="choose", options=("a", "b"), detail="é"),
    asked(title="Form", kind="form", schema={"type": "object", "properties": {"a": {"enum": ["x"]}}}),
    failed(facts={"exit_code": 1, "signal": None, "peak": 2.5}),
    e.BranchCreated(branch=1, parent=0, cutoff_seq=3, kept=[LEAF], dropped=()),  # type: ignore[arg-type]
    e.WorkflowCancelled(reason=None),
]


@pytest.mark.parametrize("body", SOUND, ids=lambda body: type(body).__name__)
def test_a_sound_body_gives_the_bytes_that_the_log_will_hold(body: e.Body) -> None:
    data = check_body(body)
    assert data in encode_events([e.Event(1, 5.0, body)])


UNREADABLE = [
    (asked(title="pick", kind="choose", options=(1, 2)), r"interaction_requested .*Expected `str`, got `int`.*options"),
    (asked(title="pick", kind="chose"), r"interaction_requested .*Invalid enum value 'chose'.*kind"),
    (asked(title="pick", detail={"a": 1}), r"Expected `str \| null`, got `object`.*detail"),
    (asked(title=LONE), r"question\.title: .*surrogates"),
    (asked(title="pick", options=("a", LONE)), r"question\.options\.1: .*surrogates"),
    (asked(title="pick", schema={"a": {LONE: 1}}), r"question\.schema\.a\.key .*surrogates"),
    (asked(title="pick", schema={"a": object()}), r"question\.schema\.a: builtins\.object has no JSON form"),
    (failed(message=LONE), r"step_failed .*error\.message: .*surrogates"),
    (failed(facts={"exit_code": [1]}), r"facts"),
    (e.WorkflowCancelled(reason="\ud800"), "reason: .*surrogates"),
    (e.SignalWaited(leaf=LEAF, name="go", due_at=float("nan")), "due_at would be read back as another value"),
    (e.TimerStarted(leaf=LEAF, due_at=float("inf")), r"Expected `float`, got `null`.*due_at"),
    (e.StepCompleted(LEAF, msgspec.Raw(b"nonsense")), "malformed"),
    (e.StepCompleted(LEAF, msgspec.Raw(b'1,"attempt":7')), "result, attempt would be read back as another value"),
    (failed(facts={"peak": float("nan")}), "error would be read back as another value"),
]


@pytest.mark.parametrize(("body", "expected"), UNREADABLE, ids=[expected for _, expected in UNREADABLE])
def test_a_body_that_could_not_be_read_back_is_refused_with_its_field(body: e.Body, expected: str) -> None:
    with pytest.raises(NotJson, match=r"^event \w+ cannot be stored: ") as refused:
        check_body(body)
    assert refused.match(expected)


def test_a_body_that_holds_itself_is_refused() -> None:
    ring: dict[str, object] = {}
    ring["again"] = ring
    with pytest.raises(NotJson, match=r"interaction_requested cannot be stored: question\.schema\.again"):
        check_body(asked(title="pick", schema=ring))


def test_a_body_over_the_limit_of_one_event_is_refused() -> None:
    with pytest.raises(TooLarge, match=r"workflow_cancelled cannot be stored: it has .* bytes, the limit is"):
        check_body(e.WorkflowCancelled(reason="x" * EVENT_BYTES_MAX))


def deep(levels: int, open_: str = "[", close: str = "]") -> bytes:
    return (open_ * levels + close * levels).encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (deep(NESTING_MAX), False),
        (deep(NESTING_MAX + 1), True),
        (deep(NESTING_MAX // 2 + 1, '{"a":[', "]}"), True),
        (b"[" + b",".join([b'{"a":[]}'] * 5_000) + b"]", False),
        (b'["' + b"[" * 5_000 + b'"]', False),
        (b'["' + rb"\"[" * 5_000 + b'",{"\\\\":"{"}]', False),
        (b'["a","' + b"{" * 300 + b'",' + deep(NESTING_MAX) + b"]", True),
    ],
    ids=["at the limit", "lists", "objects and lists", "wide", "in a text", "in a text with escapes", "both"],
)
def test_nesting_is_counted_in_brackets_that_are_not_text(data: bytes, expected: bool) -> None:
    assert nested_too_deeply(data) is expected


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('[]{}"\\a,:é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
    max_leaves=12,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(value=VALUES, limit=st.integers(1, 4))
def test_nesting_is_the_depth_of_the_value(value: object, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("buoy.core.log.codec.NESTING_MAX", limit)
        assert nested_too_deeply(msgspec.json.encode(value)) is (depth_of(value) > limit)


def test_a_value_that_is_nested_too_deeply_is_refused_where_it_is_made() -> None:
    value = msgspec.json.decode(deep(NESTING_MAX + 1))
    with pytest.raises(NotJson, match="the result of a cannot be stored as JSON: it is nested more than 200 deep"):
        encode(value, "the result of a")
    with pytest.raises(NotJson, match="step_completed cannot be stored: it is nested more than 200 deep"):
        check_body(e.StepCompleted(LEAF, msgspec.Raw(deep(NESTING_MAX + 1))))


@given(st.text(st.characters(categories=None), max_size=30))
def test_every_text_for_people_can_be_made_storable(text: str) -> None:
    made = storable_text(text)
    check_body(e.WorkflowCancelled(reason=made))
    if not any(0xD800 <= ord(sign) <= 0xDFFF for sign in text):
        assert made == text


def test_a_lone_surrogate_is_written_out_and_a_long_text_cut() -> None:
    assert storable_text(f"cannot parse {LONE}") == r"cannot parse caf\udce9"
    assert storable_text("é" * 50, chars_max=3) == "ééé"


@given(st.builds(e.WorkflowCreated, workflow=st.text(), input=VALUES.map(msgspec.json.encode).map(msgspec.Raw)))
def test_what_is_accepted_is_read_back_the_same(body: e.WorkflowCreated) -> None:
    check_body(body)
    (event,) = decode_events(encode_events([e.Event(1, 5.0, body)]))
    assert event.body == body
