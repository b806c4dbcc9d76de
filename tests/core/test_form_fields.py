"""Forms as fields: what is asked, how it is read, and the example."""

from __future__ import annotations

import json

import pytest

from buoy.core.log.form_fields import example_of, fields_of, parse_field
from buoy.core.log.forms import check_form
from buoy.errors import BadInput

SCHEMA = {
    "type": "object",
    "properties": {
        "town": {"type": "string", "title": "Town"},
        "count": {"type": "integer", "minimum": 1, "default": 1},
        "size": {"enum": ["S", "M", 3]},
        "express": {"type": "boolean"},
        "price": {"$ref": "#/$defs/money"},
    },
    "required": ["town", "size", "note"],
    "$defs": {"money": {"type": "number"}},
}


def test_fields_have_title_type_options_default_and_whether_they_are_required() -> None:
    fields = fields_of(SCHEMA)
    assert fields is not None
    assert [(each.name, each.title, each.expects(), each.required) for each in fields] == [
        ("town", "Town", "a text", True),
        ("count", "count", "a whole number", False),
        ("size", "size", "one of S, M, 3", True),
        ("express", "express", "yes or no", False),
        ("price", "price", "a number", False),
        ("note", "note", "JSON, or a text", True),
    ]


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [("town", "17", "17"), ("count", "17", 17), ("size", "2", "M"), ("size", "3", 3), ("express", "Yes", True),
     ("price", "1.5", 1.5), ("note", "a b", "a b"), ("note", "[1]", [1])],
)  # fmt: skip
def test_a_field_is_read_by_its_type(name: str, typed: str, value: object) -> None:
    (field,) = [each for each in fields_of(SCHEMA) or [] if each.name == name]
    assert parse_field(field, typed) == value


@pytest.mark.parametrize(("name", "typed"), [("count", "many"), ("size", "4"), ("express", "perhaps"), ("price", "")])
def test_a_field_that_cannot_be_read_is_refused(name: str, typed: str) -> None:
    (field,) = [each for each in fields_of(SCHEMA) or [] if each.name == name]
    with pytest.raises(BadInput, match=f"^{name}: expected "):
        parse_field(field, typed)


@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"type": "object"}, {"$ref": "#"}, {"properties": {}}])
def test_what_is_no_object_with_properties_has_no_fields(schema: dict[str, object]) -> None:
    assert fields_of(schema) is None


@pytest.mark.parametrize(
    "schema",
    [SCHEMA, {"type": "array", "items": {"type": "integer"}}, {"type": "string"}, {"anyOf": [{"type": "integer"}, {}]},
     {"properties": {"a": {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}}, "required": ["a"]},
     {"type": "integer", "minimum": 10}, {"type": "number", "exclusiveMinimum": 5}, {"type": "integer", "maximum": -3},
     {"type": ["integer", "null"]}, {"type": "string", "minLength": 12},
     {"type": "array", "items": {"type": "string"}, "minItems": 3}],
)  # fmt: skip
def test_an_example_fits_its_schema(schema: dict[str, object]) -> None:
    check_form("q", schema, json.loads(example_of(schema)))


def test_an_example_of_a_schema_without_end_ends() -> None:
    assert len(example_of({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})) < 500


def test_all_that_is_wrong_with_an_answer_is_told() -> None:
    with pytest.raises(BadInput) as refused:
        check_form("q", SCHEMA, {"town": 5, "count": 0, "size": "XL"})
    for place in ("town: ", "count: ", "size: ", "'note' is a required property"):
        assert place in str(refused.value)
