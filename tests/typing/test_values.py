"""Dataclasses, structs and pydantic models go into runs and come out of them as what they were, also after a replay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest

import buoy
from buoy.engine.authoring.definitions import Workflow
from buoy.errors import BadInput

pydantic = pytest.importorskip("pydantic")


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    item: str
    price: Decimal
    colour: Colour = Colour.RED


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    due: date
    tags: set[str] = field(default_factory=set)


class Parcel(msgspec.Struct, frozen=True):
    order: str
    sent: datetime
    weights: tuple[float, ...] = ()
    after: timedelta = timedelta(hours=1)


class Address(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    town: str
    zip: str | None = None


class Customer(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    name: str
    addresses: list[Address]
    since: datetime


class Options(TypedDict):
    express: bool


ORDER = Order(UUID(int=7), [Line("lamp", Decimal("12.50"))], date(2026, 1, 2), {"a"})
PARCEL = Parcel("A-7", datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), (1.5, 2.0), timedelta(days=2))
CUSTOMER = Customer(name="Ann", addresses=[Address(town="Ulm")], since=datetime(2020, 1, 1, tzinfo=UTC))

SEEN: list[tuple[str, Any]] = []


@buoy.step
async def to_parcel(order: Order, options: Options) -> Parcel:
    SEEN.append(("order", order))
    SEEN.append(("options", options))
    return PARCEL


@buoy.step
def to_customer(parcel: Parcel, customer: Customer) -> Customer:
    SEEN.append(("parcel", parcel))
    return customer


@buoy.step
async def many(customers: list[Customer], by_name: dict[str, Line], maybe: Order | None) -> dict[str, Customer]:
    return {each.name: each for each in customers}


@buoy.workflow
async def shipping(order: Order, customer: Customer) -> Customer:
    parcel = await to_parcel(order, {"express": True})
    assert parcel == PARCEL, parcel
    found = await to_customer.call(parcel, customer)
    assert isinstance(found, Customer)
    assert (await many([found], {"x": order.lines[0]}, None))["Ann"] == CUSTOMER
    await buoy.wait_signal("go")
    assert type(found) is Customer, "a replay gave something else"
    return found


@buoy.workflow
async def echo_order(order: Order) -> Order:
    return order


@buoy.workflow
def echo_parcel(parcel: Parcel) -> Parcel:
    return parcel


@buoy.workflow
async def echo_customer(customer: Customer) -> Customer:
    return customer


def test_typed_values_survive_steps_and_a_replay(tmp_path: Path) -> None:
    async def play() -> None:
        url = f"sqlite:///{tmp_path / 'runs.db'}"
        SEEN.clear()
        async with buoy.open(url, workflows=[shipping]) as app:
            await app.start_as("s-1", shipping, ORDER, CUSTOMER)
            while (await app.record("s-1")).document.status != "waiting_signal":
                await app.store.wait_for_change(0.02)
        async with buoy.open(url, workflows=[shipping]) as app:
            await app.signal("s-1", "go")
            run: buoy.Run[Customer] = await app.get("s-1")
            assert Customer.model_validate(await run.result()) == CUSTOMER
        assert SEEN == [("order", ORDER), ("options", {"express": True}), ("parcel", PARCEL)]

    asyncio.run(play())


@pytest.mark.parametrize(("workflow", "value"), [(echo_order, ORDER), (echo_parcel, PARCEL), (echo_customer, CUSTOMER)])
def test_a_result_has_the_type_that_was_declared(tmp_path: Path, workflow: Workflow[..., Any], value: object) -> None:
    async def play() -> None:
        async with buoy.open(f"sqlite:///{tmp_path / 'runs.db'}", workflows=[workflow]) as app:
            run = await app.start(workflow, value)
            found = await run.result()
            assert (type(found), found) == (type(value), value)

    asyncio.run(play())


@pytest.mark.parametrize(
    "given",
    [
        '{"customer": {"name": 5, "since": "2020-01-01T00:00:00Z"}}',
        '{"customer": {"name": "Ann"}}',
        '{"customer": 5}',
        "{}",
    ],
)
def test_input_that_does_not_fit_a_model_is_refused_and_nothing_is_started(tmp_path: Path, given: str) -> None:
    async def play() -> None:
        async with buoy.connect(f"sqlite:///{tmp_path / 'runs.db'}") as client:
            with pytest.raises(BadInput):
                await client.start_stored("c-1", echo_customer, msgspec.Raw(given.encode()))
            assert (await client.runs()).runs == ()

    asyncio.run(play())
