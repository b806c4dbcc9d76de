"""Arguments and parameters as a person types them: what they become, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from buoy.engine.authoring.arguments import Arguments
from buoy.errors import BadInput
from buoy.operations.targets.inputs import stored_input
from buoy.operations.targets.spec_files import parameters


class Order(pydantic.BaseModel):
    x: int


def takes(
    order: Order | None = None,
    dec: Decimal = Decimal(0),
    cents: int = 0,
    ids: list[int] | None = None,
    names: list[str] | None = None,
) -> None:
    """What the arguments below are given to."""


def given(*pairs: str) -> dict[str, Any]:
    stored = stored_input(Arguments(takes, "takes"), None, pairs)
    assert stored is not None
    found: dict[str, Any] = msgspec.json.decode(stored)
    return found


@pytest.mark.parametrize("text", ["12345678901234567890.123456789", "1.10"])
def test_a_decimal_keeps_its_digits(text: str) -> None:
    assert given(f"dec={text}")["dec"] == text


def test_a_decimal_may_be_written_as_json_text() -> None:
    assert given('dec="1.10"')["dec"] == "1.10"


def test_a_list_is_given_as_json() -> None:
    assert given("ids=[1, 5]")["ids"] == [1, 5]


@pytest.mark.parametrize(
    ("pair", "advice"),
    [
        ("names=eu,us", """--arg names='["eu","us"]'"""),
        ("names=[eu, us]", """--arg names='["eu","us"]'"""),
        ("ids=eu", "--arg ids='[1, 2]'"),
    ],
)
def test_a_list_that_is_no_json_is_refused_with_the_way_to_write_it(pair: str, advice: str) -> None:
    with pytest.raises(BadInput) as refused:
        given(pair)
    assert str(refused.value).endswith(advice)


@pytest.mark.parametrize(
    ("pair", "expected", "absent"),
    [('order={"x": "q"}', "x", "valid dictionary"), ("cents=1.5", "float", "`str`")],
)
def test_a_value_that_does_not_fit_is_refused_for_what_it_is(pair: str, expected: str, absent: str) -> None:
    with pytest.raises(BadInput) as refused:
        given(pair)
    assert expected in str(refused.value) and absent not in str(refused.value)


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="--arg cents is given twice"):
        given("cents=1", "cents=2")
    with pytest.raises(BadInput, match="--param region is given twice"):
        parameters(("region=eu", "region=us"))


def test_what_a_model_refuses_is_told_in_one_line_with_the_field() -> None:
    with pytest.raises(BadInput) as refused:
        given('order={"x": "q"}')
    said = "x: Input should be a valid integer, unable to parse string as an integer - at `$.order`"
    assert said in str(refused.value) and "\n" not in str(refused.value)
