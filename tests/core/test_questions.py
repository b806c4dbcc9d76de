"""What may be asked, and which answers fit."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import rpds

from buoy.core.log.forms import check_form, check_schema
from buoy.core.log.questions import Question, check_answer, check_question
from buoy.errors import BadInput

SIZES = Question("Size?", "choose", options=("S", "M", "L"))
TOPPINGS = Question("Which?", "choose_many", options=("ham", "egg", "kale"))
FORM = Question(
    "Where to?",
    "form",
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "floors": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city"],
    },
)


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (Question("Go?", "confirm"), True, True),
        (Question("Go?", "confirm"), False, False),
        (Question("Go?", "confirm"), " Yes ", True),
        (Question("Go?", "confirm"), "n", False),
        (SIZES, "M", "M"),
        (TOPPINGS, ["egg", "ham"], ["egg", "ham"]),
        (TOPPINGS, [], []),
        (Question("Name?"), "", ""),
        (Question("Name?"), "ä", "ä"),
        (FORM, {"city": "Rome", "floors": [1]}, {"city": "Rome", "floors": [1]}),
        (Question("Any?", "form", schema={}), None, None),
    ],
)
def test_a_fitting_answer_is_given_back_in_its_stored_form(
    question: Question, answer: object, expected: object
) -> None:
    assert check_question(question) == question
    found = check_answer(question, answer)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (Question("Go?", "confirm"), "perhaps", "expected yes or no, found 'perhaps'"),
        (Question("Go?", "confirm"), 1, "expected yes or no, found 1"),
        (Question("Go?", "confirm"), None, "expected yes or no, found None"),
        (SIZES, "XL", "expected one of 'S', 'M', 'L', found 'XL'"),
        (SIZES, ["S"], "expected one of"),
        (SIZES, "", "expected one of"),
        (TOPPINGS, "ham", "expected a list out of 'ham', 'egg', 'kale', found 'ham'"),
        (TOPPINGS, ["ham", "ham"], "chosen twice"),
        (TOPPINGS, ["ham", "tin"], "found 'tin'"),
        (TOPPINGS, [["ham"]], "expected one of"),
        (Question("Name?"), 7, "expected a text, found 7"),
        (FORM, {}, "the answer: 'city' is a required property"),
        (FORM, {"city": "Rome", "floors": [1, "x"]}, "floors/1: 'x' is not of type 'integer'"),
        (FORM, "Rome", "the answer: 'Rome' is not of type 'object'"),
    ],
)
def test_a_wrong_answer_is_refused_with_what_was_expected(question: Question, answer: object, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        check_answer(question, answer)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("answer", ["x" * 100_000, 10**5000, nested(5000)], ids=["text", "number", "list"])
def test_a_monstrous_answer_gets_a_short_refusal(answer: object) -> None:
    with pytest.raises(BadInput) as caught:
        check_answer(SIZES, answer)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Question(" "), "needs a title"),
        (Question("Size?", "choose"), "'choose' needs options"),
        (Question("Size?", "choose_many"), "'choose_many' needs options"),
        (Question("Where?", "form"), "needs a schema"),
        (Question("Where?", "form", schema={"type": "place"}), "'Where.' is not a JSON Schema: 'place'"),
        (Question("Where?", "form", schema={"required": "city"}), "is not a JSON Schema"),
        (Question("Where?", "form", schema={"pattern": "("}), "is not a JSON Schema: '.' is not a 'regex'"),
        (Question("Where?", "form", schema={"$ref": 5}), "is not a JSON Schema"),
        (Question("Where?", "form", schema={"$ref": "#/$defs/place"}), "references must stay inside"),
        (Question("Where?", "form", schema={"$dynamicRef": "#place"}), "references must stay inside"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(question: Question, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        check_question(question)


@pytest.mark.parametrize("ref", ["http://127.0.0.1:9/place.json", "file:///etc/hostname", "place.json"])
def test_no_reference_to_elsewhere_is_ever_fetched(ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*_: Any, **__: Any) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(urllib.request, "urlopen", fetched)
    question = Question("Where?", "form", schema={"properties": {"place": {"$ref": ref}}})
    with pytest.raises(BadInput, match="references must stay inside"):
        check_question(question)
    with pytest.raises(BadInput, match="cannot be judged by the schema"):
        check_answer(question, {"place": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
        {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "integer"}}},
        {"$id": "https://example.org/a", "$ref": "b", "$defs": {"n": {"$id": "b", "type": "integer"}}},
    ],
)
def test_references_inside_of_a_schema_work(schema: dict[str, object]) -> None:
    question = check_question(Question("How many?", "form", schema=schema))
    assert check_answer(question, 3) == 3
    with pytest.raises(BadInput, match="is not of type 'integer'"):
        check_answer(question, "three")


def test_a_schema_that_goes_in_circles_refuses_the_answer_and_nothing_worse() -> None:
    question = check_question(Question("What?", "form", schema={"$ref": "#"}))
    with pytest.raises(BadInput, match="cannot be judged"):
        check_answer(question, 1)


@pytest.mark.parametrize(
    ("schema", "answer", "expected"),
    [
        ({"maxLength": 3}, "four", r"the answer: 'four' is too long \(the most characters: 3\)$"),
        ({"minItems": 2}, [1], r"\[1\] is too short \(the fewest items: 2\)$"),
    ],
)
def test_an_answer_of_a_wrong_length_names_the_limit(schema: dict[str, object], answer: object, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        check_answer(Question("What?", "form", schema=schema), answer)


def test_an_answer_beyond_arithmetic_is_refused() -> None:
    question = Question("How many?", "form", schema={"multipleOf": 0.5})
    for answer in (10**400, float("inf")):
        with pytest.raises(BadInput, match="cannot be judged"):
            check_answer(question, answer)


@pytest.mark.parametrize(
    ("schema", "answer", "expected"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 50 + "!", "does not match"),
        ({"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False}, {"a" * 50 + "!": 1},
         "is not expected"),
        ({"patternProperties": {"^x": {"type": "string"}}}, {"xy": 1}, "xy: 1 is not of type 'string'"),
        ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 50 + "!": 1}, "does not match"),
        ({"uniqueItems": True}, [*({"n": n} for n in range(30_000)), {"n": 1.0}], "the same item is there twice"),
        ({"$defs": {"n": {"items": {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}, {"type": "string"}]},
                          "contains": {"const": 5}}}, "$ref": "#/$defs/n"}, "deep", "takes too long to check"),
    ],
)  # fmt: skip
def test_no_schema_and_no_answer_keep_their_judge_busy(schema: dict[str, object], answer: Any, expected: str) -> None:
    if answer == "deep":
        answer = []
        for _ in range(40):
            answer = [answer]
    with pytest.raises(BadInput, match=expected):
        check_answer(check_question(Question("What?", "form", schema=schema)), answer)


def test_items_that_differ_are_unique() -> None:
    schema: dict[str, object] = {"uniqueItems": True}
    check_answer(Question("What?", "form", schema=schema), [1, "1", True, [1], {"a": 1}, 1.5, None, False, 0])


def test_a_pattern_that_can_not_be_judged_is_refused_when_the_question_is_asked() -> None:
    question = Question("What?", "form", schema={"properties": {"a": {"pattern": r"^(a)\1$"}}})
    with pytest.raises(BadInput, match="takes unbounded time to match"):
        check_question(question)
    assert check_answer(question, {"a": "b"}) == {"a": "b"}, "an older version asked it: it can be answered"


def _deep_in_the_stack(depth: int, work: Callable[[], None]) -> None:
    if depth:
        _deep_in_the_stack(depth - 1, work)
    else:
        work()


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$dynamicRef": "#"}, {"not": {"$ref": "#"}}]
)
def test_a_schema_that_leads_back_to_itself_is_a_refusal_however_deep_the_stack_is(schema: dict[str, object]) -> None:
    """At the end of Python's stack jsonschema's library may panic, with an error that is no `Exception`."""

    def judge() -> None:
        with pytest.raises(BadInput, match="nested"):
            check_form("Go?", schema, [1])

    for depth in range(12):
        _deep_in_the_stack(depth, judge)


class _Unequal:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise RecursionError


def _panic(*_: object, **__: object) -> None:
    """What the library does where Python's stack ends."""
    rpds.HashTrieMap([(_Unequal(), 1)]).insert(_Unequal(), 2)


def test_a_panic_of_the_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonschema.Draft202012Validator, "check_schema", _panic)
    with pytest.raises(BadInput, match="nested too deeply"):
        check_schema("Go?", {})
    monkeypatch.setattr("buoy.core.log.forms._unique_items", _panic)
    with pytest.raises(BadInput, match="nested too deeply"):
        check_form("Go?", {"uniqueItems": True}, [1])


def test_an_answer_of_many_levels_is_judged_by_a_schema_that_refers_to_itself() -> None:
    tree: object = []
    for _ in range(60):
        tree = [tree]
    check_form("Go?", {"type": "array", "items": {"$ref": "#"}}, tree)
