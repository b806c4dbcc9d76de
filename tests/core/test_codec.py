"""Values and events to JSON bytes and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib.util
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.cluster_changes import ActionsReset, AllocationPlanned
from buoy.core.log.codec import convert, decode, decode_events, encode, encode_events, same_after_storage
from buoy.core.log.questions import Question
from buoy.errors import BadInput, CorruptLog, NotJson, TooLarge

from .logbook import BROKEN, claimed, completed, created, log, started

LEAF = LeafId("p.1/a#2")
RAW = msgspec.Raw(b'{ "n" : 1.50, "big": 123456789012345678901234567890 }')
ONE_OF_EACH: list[e.Body] = [
    e.WorkflowCreated(workflow="w", input=RAW, version="1", parent=e.Parent(run=RunId("r"), leaf=LEAF), by="me"),
    e.Claimed(runner="r1", cause="taken_over", evidence={"pid": 7, "gone": True, "age_s": 1.5, "why": None}),
    e.Paused(reason="poison", detail="d", message=1, by="me"),
    e.Resumed(message=2),
    e.Interrupted(signal="SIGTERM", runner="r1"),
    e.CancelRequested(message=3, reason="enough"),
    e.JumpRequested(to=LEAF, new_branch=BranchId(1), message=4),
    e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=3, kept=(LEAF,), dropped=(LEAF,), cause="jump"),
    e.WorkflowRecovered(
        reason="x", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=3, finding="A1", actor="me"
    ),
    e.VersionBound(version="2", previous="1", detail="migrated", renamed={"charge": "pay"}),
    e.MessageRefused(message=5, reason="late"),
    e.JobsEnded(lot=RunId("r.lot-1"), message=11),
    e.JobsReset(
        leaves=(LEAF,), limits={LEAF: e.JobLimits(memory_bytes=7, time_s=1.5)}, message=12, by="me", recovery="watch"
    ),
    e.JobsStopped(leaves=(LEAF,), disabled=True, cause="dependency", reason="x", message=13, by="me"),
    e.ClusterChanged(number=2, changes=(AllocationPlanned("r.a1.x", "s"), ActionsReset()), message=14, by="me"),
    e.Published(items=(e.PublishedItem(LEAF, RAW, "tokens", 2),), claim=2, dropped=3, full=True),
    e.Moved(to="s3://bucket/runs", by="me"),
    e.StepStarted(leaf=LEAF, name="a", attempt=2, args=RAW, key="k", queue="q", compensate="undo"),
    e.StepCompleted(leaf=LEAF, result=RAW, attempt=2, message=6),
    e.StepFailed(leaf=LEAF, error=BROKEN, attempt=2, message=7),
    e.JobOffered(leaf=LEAF, name="a", lot=3, attempt=2),
    e.JobHeld(leaf=LEAF, error=BROKEN, attempt=2),
    e.RetryScheduled(leaf=LEAF, attempt=1, due_at=1.5, error=BROKEN),
    e.ModuleStarted(leaf=LEAF, step="s", module="m", args=RAW),
    e.ModuleCompleted(leaf=LEAF, result=RAW),
    e.ModuleFailed(leaf=LEAF, error=BROKEN),
    e.InteractionRequested(
        leaf=LEAF, question_id="q", question=Question("Go?", "form", schema={"type": "object"}, detail="d")
    ),
    e.InteractionResponse(leaf=LEAF, question_id="q", answer=RAW, message=8, by="me"),
    e.SignalWaited(leaf=LEAF, name="s", due_at=2.5),
    e.SignalReceived(leaf=LEAF, message=9, payload=RAW),
    e.TimerStarted(leaf=LEAF, due_at=3.5),
    e.TimerFired(leaf=LEAF),
    e.LeafCancelled(leaf=LEAF),
    e.ChildStarted(leaf=LEAF, child=RunId("c"), workflow="w", input=RAW, detach=True),
    e.ChildFinished(leaf=LEAF, child=RunId("c"), status="failed", result=RAW, error=BROKEN, message=10),
    e.CompensationStarted(leaf=LEAF, key="k", attempt=2),
    e.CompensationRetryScheduled(leaf=LEAF, attempt=1, due_at=9.0, error=BROKEN),
    e.CompensationCompleted(leaf=LEAF),
    e.CompensationFailed(leaf=LEAF, error=BROKEN),
    e.WorkflowCompleted(result=RAW),
    e.WorkflowFailed(error=BROKEN),
    e.WorkflowCancelled(reason="enough"),
]


# Events.


def test_the_list_of_payloads_is_whole() -> None:
    assert [type(body) for body in ONE_OF_EACH] == list(e.BODIES)


@pytest.mark.parametrize("body", ONE_OF_EACH, ids=lambda body: e.event_name(type(body)))
def test_every_payload_comes_back_as_it_was(body: e.Body) -> None:
    event = e.Event(seq=3, at=1.25, body=body, branch=BranchId(2), nonce="n")
    assert decode_events(encode_events([event])) == [event]


def test_names_of_events_are_unique_and_the_stored_tag() -> None:
    names = [e.event_name(kind) for kind in e.BODIES]
    assert len(set(names)) == len(names)
    assert b'"type":"step_started"' in encode_events(log(started("a#1")))


def test_raw_json_is_kept_byte_for_byte() -> None:
    (event,) = decode_events(encode_events(log(e.StepCompleted(leaf=LEAF, result=RAW))))
    assert isinstance(event.body, e.StepCompleted)
    assert bytes(event.body.result) == bytes(RAW)


def test_what_stands_for_nothing_is_not_stored() -> None:
    assert encode_events([e.Event(1, 2.0, e.StepCompleted(leaf=LEAF, result=encode(None, "it")))]) == (
        b'[{"seq":1,"at":2.0,"body":{"type":"step_completed","leaf":"p.1/a#2"}}]'
    )


@pytest.fixture
def second_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """step_completed at version 2: the older one had its result under another name."""

    def rename(body: dict[str, Any]) -> dict[str, Any]:
        body = dict(body)
        body["result"] = body.pop("output")
        return body

    monkeypatch.setitem(e.VERSIONS, e.StepCompleted, 2)
    monkeypatch.setitem(codec.UPCASTS, ("step_completed", 1), rename)
    yield


OLD = b'{"seq":2,"at":2.0,"body":{"type":"step_completed","leaf":"a#1","output":{"n":[1,null]}}}'
KEPT = b'{"seq":1,"at":1.0,"body":{"type":"workflow_completed","result":{ "n" : 1.50 }}}'


@pytest.mark.usefixtures("second_version")
def test_an_older_payload_is_upcast() -> None:
    (event,) = decode_events(b"[" + OLD + b"]")
    assert event.body == e.StepCompleted(leaf=LeafId("a#1"), result=msgspec.Raw(b'{"n":[1,null]}'))
    assert (event.v, encode_events([event]).count(b'"v":2')) == (1, 1)


@pytest.mark.usefixtures("second_version")
def test_an_older_event_does_not_touch_the_raw_json_of_its_neighbours() -> None:
    first, _ = decode_events(b"[" + KEPT + b"," + OLD + b"]")
    assert first.body == e.WorkflowCompleted(result=msgspec.Raw(b'{ "n" : 1.50 }'))


@pytest.mark.usefixtures("second_version")
def test_events_are_written_with_the_version_of_their_payload() -> None:
    data = encode_events(log(completed("a#1"), started("b#1")))
    assert data.count(b'"v":2') == 1
    assert decode_events(data) == log(completed("a#1"), started("b#1"))


@pytest.mark.usefixtures("second_version")
def test_an_upcast_that_does_not_fit_is_a_corrupt_log_that_names_the_event() -> None:
    with pytest.raises(CorruptLog, match="event 2, 'step_completed' of version 1, cannot be upcast: KeyError"):
        decode_events(OLD.replace(b"output", b"outcome").join([b"[", b"]"]))


def test_a_payload_of_a_later_version_is_refused_with_advice() -> None:
    later = b'[{"seq":4,"at":1.0,"v":2,"body":{"type":"timer_fired","leaf":"a#1"}}]'
    with pytest.raises(CorruptLog, match=r"event 4 is 'timer_fired' of version 2.* upgrade"):
        decode_events(later)


def test_an_unknown_event_is_refused_by_name_with_advice() -> None:
    with pytest.raises(CorruptLog, match=r"the log of r1: event 9 is 'step_dreamt'.* upgrade this one"):
        decode_events(b'[{"seq":9,"at":1.0,"body":{"type":"step_dreamt"}}]', "the log of r1")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"{}",
        b"null",
        b"[1]",
        b"[{}]",
        b'[{"seq":1,"at":1.0}]',
        b'[{"seq":1,"at":1.0,"body":{}}]',
        b'[{"seq":1,"at":1.0,"body":[]}]',
        b'[{"seq":1,"at":1.0,"body":{"type":["list"]}}]',
        b'[{"seq":1,"at":1.0,"v":[],"body":{"type":"timer_fired","leaf":"a"}}]',
        b'[{"seq":"x","at":1.0,"body":{"type":"timer_fired","leaf":"a"}}]',
        b'[{"seq":1,"at":1.0,"body":{"type":"timer_fired"}}]',
        b'[{"seq":1,"at":1.0,"v":0,"body":{"type":"timer_fired","leaf":"a"}}]',
        b'[{"seq":1,"at":NaN,"body":{"type":"timer_fired","leaf":"a"}}]',
        b"\xff\xfe\x00",
        b'["\xff"]',
        b"[" * 100_000,
        encode_events(log(created(), claimed()))[:-7],
    ],
)
def test_bytes_that_are_no_log_are_a_corrupt_log(data: bytes) -> None:
    with pytest.raises(CorruptLog, match="the log of r1"):
        decode_events(data, "the log of r1")


# Values.


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    name: str
    price: float
    when: dt.datetime | None = None


class Order(msgspec.Struct):
    id: uuid.UUID
    items: list[Item]
    colour: Colour = Colour.RED
    blob: bytes = b""


NOON = dt.datetime(2024, 2, 29, 12, 0, tzinfo=dt.UTC)
ITEM = Item("cup", 2.5, NOON)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (True, bool),
        (2**200, int),
        (0.1, float),
        ("ä\x00\u2028", str),
        (b"\x00\xff", bytes),
        (NOON, dt.datetime),
        (NOON.date(), dt.date),
        (dt.timedelta(days=1, seconds=2), dt.timedelta),
        (uuid.UUID(int=5), uuid.UUID),
        (Decimal("1.10"), Decimal),
        (Colour.RED, Colour),
        (ITEM, Item),
        (Order(uuid.UUID(int=6), [ITEM], blob=b"x"), Order),
        ({"a": [ITEM]}, dict[str, list[Item]]),
        ((1, "a"), tuple[int, str]),
        ({1, 2}, set[int]),
        (frozenset({"a"}), frozenset[str]),
        ({1: "a"}, dict[int, str]),
        ([1, None, {"a": 1.5}], Any),
    ],
    ids=repr,
)
def test_an_annotated_value_comes_back_as_it_was(value: object, kind: Any) -> None:
    found = decode(encode(value, "it"), kind, "it")
    assert found == value
    assert type(found) is type(value)


def test_without_an_annotation_live_and_replayed_values_are_the_same_plain_data() -> None:
    data = encode({"item": ITEM, "ids": (1, 2)}, "it")
    live = same_after_storage({"item": ITEM, "ids": (1, 2)}, Any, data)
    assert live == decode(data, Any, "it")
    assert live == {"item": {"name": "cup", "price": 2.5, "when": "2024-02-29T12:00:00Z"}, "ids": [1, 2]}


@pytest.mark.parametrize(("value", "kind"), [(3, float), (True, int), ("2024-02-29", dt.date), (3, int), ("x", Any)])
def test_a_live_value_is_seen_as_a_replay_will_see_it(value: object, kind: Any) -> None:
    data = encode(value, "it")
    if kind is int and value is True:
        with pytest.raises(BadInput, match="does not fit"):
            same_after_storage(value, kind, data)
        return
    live, replayed = same_after_storage(value, kind, data), decode(data, kind, "it")
    assert live == replayed
    assert type(live) is type(replayed)


def nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


@dataclasses.dataclass
class Reading:
    value: float


class Point(msgspec.Struct):
    x: float
    note: msgspec.Raw = msgspec.Raw(b"null")


class Model:
    """Looks to the codec like a pydantic model."""

    def model_dump(self, mode: str) -> dict[str, float]:
        return {"x": float("nan")}


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [1, {"a": -float("inf")}],
        Reading(float("nan")),
        Point(float("inf")),
        (1.0, {float("nan")}),
        nested(float("nan"), 100),
        Model(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_not_a_number_and_infinity_are_refused_wherever_they_hide(value: object) -> None:
    with pytest.raises(NotJson, match="the result of a cannot be stored as JSON: it holds NaN or infinity"):
        encode(value, "the result of a")


def test_null_by_itself_is_no_reason_for_a_refusal() -> None:
    assert encode({"a": None, "b": "null", "c": Point(1.0)}, "it") == msgspec.Raw(
        b'{"a":null,"b":"null","c":{"x":1.0,"note":null}}'
    )


class Custom:
    pass


def ring() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Custom(), r"test_codec\.Custom has no JSON form;"),
        ({"a": [Custom()]}, r"test_codec\.Custom"),
        (lambda: None, "function"),
        (1j, "complex"),
        ({(1, 2): 3}, "builtins.tuple has no JSON form as a key"),
        ("\ud800", "surrogates"),
        (ring(), "recursion"),
    ],
    ids=["object", "nested", "function", "complex", "tuple as key", "lone surrogate", "ring"],
)
def test_what_is_no_json_is_refused_with_its_name_its_type_and_advice(value: object, expected: str) -> None:
    with pytest.raises(NotJson, match=f"the result of step a cannot be stored as JSON: .*{expected}.* return plain"):
        encode(value, "the result of step a")


def test_what_is_too_large_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(TooLarge, match=r"the input has 2,002 bytes, the limit is 1,000; store it elsewhere"):
        encode("x" * 2000, "the input", limit=1000)
    assert encode("x" * 998, "the input", limit=1000)


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (b'"x"', int, "the answer does not fit: Expected `int`, got `str`"),
        (b'{"name":"x","price":"y"}', Item, r"Expected `float`, got `str` - at `\$.price`"),
        (b"{", Any, "the answer is not JSON"),
        (b'"\xff"', str, "the answer is not JSON"),
        (b"1", Custom, "the answer cannot be read as"),
        (b"1", list[int] | set[int], "the answer cannot be read as"),
        (b"[" * 100_000, Any, "the answer cannot be read as"),
    ],
)
def test_data_of_another_form_is_refused_with_the_place(data: bytes, kind: Any, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        decode(data, kind, "the answer")


def test_plain_data_converts_or_is_refused_with_the_place() -> None:
    assert convert({"name": "cup", "price": 2.5}, Item, "the input") == Item("cup", 2.5)
    with pytest.raises(BadInput, match=r"the input does not fit: .* at `\$.price`"):
        convert({"name": "cup", "price": None}, Item, "the input")
    with pytest.raises(BadInput, match="the input cannot be read as"):
        convert(1, Custom, "the input")


@pytest.mark.skipif(importlib.util.find_spec("pydantic") is None, reason="pydantic is not a dependency of Buoy")
def test_a_pydantic_model_comes_back_as_it_was() -> None:
    import pydantic

    kind: Any = pydantic.create_model("Order", id=(uuid.UUID, ...), when=(dt.datetime, ...), tags=(set[str], ...))
    order = kind(id=uuid.UUID(int=1), when=NOON, tags={"a"})
    assert decode(encode([order], "it"), list[kind], "it") == [order]
    with pytest.raises(BadInput, match="does not fit"):
        decode(b'{"id":1}', kind, "it")
