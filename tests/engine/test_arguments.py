"""Arguments: what a step or workflow takes is checked when it is declared, called and started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import pydantic
import pytest

import buoy
from buoy.core.log import events as e
from buoy.engine.authoring.arguments import Arguments, same_call

from .harness import bodies_of, log_of, opened, plant, renamed, result_of, store_at, until_event


class Own:
    pass


@dataclass
class Unlucky:
    x: int

    def __post_init__(self) -> None:
        if self.x >= 13:
            raise [RuntimeError("unlucky"), KeyError("gone"), ValueError("no"), KeyboardInterrupt()][self.x - 13]


class Checked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_assignment=False)
    x: int

    @pydantic.model_validator(mode="after")
    def lucky(self) -> Checked:
        if self.x >= 13:
            raise RuntimeError("unlucky")
        return self


# ---- declared


def test_a_type_that_cannot_be_stored_is_refused_when_a_step_is_declared() -> None:
    with pytest.raises(buoy.BadInput, match=r"parameter 'thing' of step takes .*type .*\.Own; use bool, int"):

        @buoy.step
        def takes(good: int, thing: Own) -> int:
            return good

    with pytest.raises(buoy.BadInput, match=r"the result of step gives .*type .*\.Own; use bool, int"):

        @buoy.step
        async def gives() -> list[Own]:
            return []


def test_a_type_that_cannot_be_stored_is_refused_when_a_workflow_is_declared() -> None:
    with pytest.raises(buoy.BadInput, match=r"parameter 'more' of workflow takes .*Own; use"):

        @buoy.workflow
        async def takes(*more: Own) -> None:
            pass

    with pytest.raises(buoy.BadInput, match=r"the result of workflow gives .*Own; use"):

        @buoy.workflow
        def gives() -> Own:
            return Own()


def test_a_parameter_with_a_default_may_be_of_any_type_since_it_need_not_be_given() -> None:
    @buoy.step
    def fetch(url: str, client: Own | None = None) -> str:
        return url

    assert bytes(fetch.arguments.encode(("a",), {})) == b'{"url":"a","client":null}'
    with pytest.raises(buoy.NotJson, match=r"the arguments of step fetch .*Own has no JSON form; pass plain data"):
        fetch.arguments.encode(("a", Own()), {})


def test_a_result_that_never_comes_may_be_declared() -> None:
    @buoy.workflow
    async def endless(n: int) -> NoReturn:
        buoy.continue_as_new(n + 1)

    assert endless.arguments.returns is Any


def test_a_name_that_comes_later_is_read_at_the_first_call() -> None:
    step = buoy.step(_takes_later)
    assert step.arguments.encode((Later(1),), {}) == msgspec.Raw(b'{"a":{"x":1}}')


def _takes_later(a: Later) -> int:
    return a.x


def _takes_unknown(a: Unknown) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 1


@dataclass
class Later:
    x: int


async def test_a_name_that_never_comes_fails_the_run_at_the_call(url: str) -> None:
    step = buoy.step(_takes_unknown)

    @buoy.workflow
    def calls() -> int:
        return step(1)

    async with opened(url, calls) as app:
        expected = "the type hints of step _takes_unknown cannot be read: name 'Unknown' is not defined; import"
        with pytest.raises(buoy.RunFailed, match=expected):
            await result_of(app, await app.start(calls))


# ---- called


@buoy.step
async def takes_unlucky(n: int, who: Unlucky) -> int:
    return n


@buoy.step
def takes_checked(who: Checked) -> int:
    return who.x


@pytest.mark.parametrize(
    ("number", "expected"), [(13, "RuntimeError: unlucky"), (14, "KeyError: 'gone'"), (15, "no"), (16, "Keyboard")]
)
async def test_a_type_that_raises_anything_fails_its_step_and_names_the_parameter(
    url: str, number: int, expected: str
) -> None:
    @buoy.workflow
    async def calls() -> str:
        who = Unlucky(1)
        who.x = number
        try:
            await takes_unlucky(1, who)
        except buoy.StepFailed as error:
            return str(error)
        return "no failure"

    @buoy.workflow
    async def good(n: int) -> int:
        return await takes_unlucky(n, Unlucky(1))

    async with opened(url, calls, good) as app:
        text = await result_of(app, await app.start(calls))
        assert "invalid arguments for step takes_unlucky: " in text
        assert expected in text
        assert "who" in text
        assert await result_of(app, await app.start(good, 7)) == 7


async def test_a_model_whose_validator_raises_anything_fails_its_step(url: str) -> None:
    @buoy.workflow
    def calls() -> str:
        who = Checked(x=1)
        who.x = 13
        try:
            return str(takes_checked(who))
        except buoy.StepFailed as error:
            return f"{error.type}: {error}"

    async with opened(url, calls) as app:
        text = await result_of(app, await app.start(calls))
        assert text.startswith("BadInput: ")
        assert "takes_checked: 'who' cannot be read" in text


async def test_a_start_with_arguments_that_do_not_fit_names_the_parameter(url: str) -> None:
    @buoy.workflow
    async def flow(path: Path, n: int = 1) -> str:
        return f"{type(path).__name__} {path} {n}"

    async with opened(url, flow) as app:
        assert await result_of(app, await app.start(flow, Path("data/x"))) == "PosixPath data/x 1"
        with pytest.raises(buoy.BadInput, match=r"invalid arguments for workflow flow: .*`\$\.path`; it takes \(path:"):
            await app.start(flow, 5)  # type: ignore[arg-type]
        with pytest.raises(buoy.BadInput, match="invalid arguments for workflow flow: missing a required argument"):
            await app.start(flow)  # type: ignore[call-arg]


# ---- defaults


async def test_a_deploy_that_changes_a_default_does_not_change_a_run_under_way(any_url: str) -> None:
    def release(default: int) -> buoy.Workflow[..., Any]:
        @buoy.workflow(name="refund")
        async def refund(order: str, cents: int = default) -> list[Any]:
            await buoy.wait_signal("go")
            return [order, cents]

        return refund

    async with opened(any_url, release(100)) as app:
        await app.start_as("r", release(100), "A")
        await until_event(app, "r", "signal_waited")
    async with opened(any_url, release(999)) as app:
        run = await app.start_as("r", release(100), "A")
        await run.signal("go")
        assert await result_of(app, run) == ["A", 100]


@pytest.mark.parametrize("stored", [b'{"order":"A"}', b'{"order":"A","cents":100}', b'{"cents":5,"order":"A"}'])
async def test_a_default_of_a_step_is_recorded_and_never_held_against_a_log(url: str, stored: bytes) -> None:
    def release(default: int) -> buoy.Workflow[..., Any]:
        @buoy.step
        async def pay(order: str, cents: int = default) -> int:
            return cents

        @buoy.workflow
        async def flow() -> int:
            paid = await pay("A")
            await buoy.wait_signal("go")
            return paid

        return flow

    async with opened(url, release(100)) as app:
        run = await app.start_as("first", release(100))
        await until_event(app, "first", "signal_waited")
        (started,) = await bodies_of(app, "first", e.StepStarted)
        assert bytes(started.args) == b'{"order":"A","cents":100}'
        log = renamed(await log_of(app, "first"), "first", "old")
        await run.signal("go")
        assert await result_of(app, run) == 100
    planted = [
        msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, args=msgspec.Raw(stored)))
        if isinstance(event.body, e.StepStarted)
        else event
        for event in log
    ]
    async with store_at(url) as store:
        await plant(store, "old", planted)
    async with opened(url, release(999)) as app:
        await app.signal("old", "go")
        assert await result_of(app, await app.get("old")) == 100


async def test_an_argument_that_the_code_gives_is_compared_though_others_are_left_out() -> None:
    here = msgspec.Raw(b'{"a":1,"b":9,"c":3}')
    assert same_call(msgspec.Raw(b'{"a":1,"b":2,"c":3}'), here, {"b"})
    assert same_call(msgspec.Raw(b'{"c":3,"a":1}'), here, {"b"})
    assert not same_call(msgspec.Raw(b'{"a":2,"b":9,"c":3}'), here, {"b"})
    assert not same_call(msgspec.Raw(b'{"a":1,"b":9}'), here, {"b"})
    assert not same_call(msgspec.Raw(b'{"a":1,"c":3,"d":4}'), here, {"b"})
    assert not same_call(msgspec.Raw(b'{"a":1,"b":2,"c":3}'), here)


async def test_the_same_start_twice_is_one_run_also_if_its_log_has_no_defaults(url: str) -> None:
    @buoy.workflow
    async def flow(a: int, b: int = 2) -> int:
        await asyncio.sleep(0)
        return a + b

    async with opened(url, flow) as app:
        run = await app.start_as("r", flow, 1)
        assert await result_of(app, run) == 3
        await app.start_as("r", flow, 1, 2)
        with pytest.raises(buoy.WrongState, match="with another input"):
            await app.start_as("r", flow, 1, 3)


def test_a_default_that_cannot_be_stored_is_left_to_the_code() -> None:
    def fn(a: int, b: int = cast(int, None), c: Any = object(), *d: int, e: int = 5) -> None:
        pass

    arguments = Arguments(fn, "step fn")
    assert bytes(arguments.encode((1,), {})) == b'{"a":1,"e":5}'
    assert arguments.decode(msgspec.Raw(b'{"a":1}')) == ([1], {})
