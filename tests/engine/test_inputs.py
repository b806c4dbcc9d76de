"""Inputs that do not fit their workflow: refused as early as can be told, and never taken for changed code."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.core.limits import OUTLINE_PARAMETERS_MAX, OUTLINES_PARAMETERS_MAX
from buoy.core.log import events as e
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.definitions import Registry
from buoy.engine.authoring.outline import check_input, outline_of
from buoy.operations.inspect.explanation import explain_run
from buoy.recovery.sweep import resume_paused
from buoy.recovery.sweep.resume_paused import go_on_with_this_code

from .harness import bodies_of, opened, plant, result_of, store_at, types_of, until_event, until_status


def taking(kind: Any) -> buoy.Workflow[..., Any]:
    """The same source, so the same version, whatever type its parameter has."""

    async def refund(order: Any) -> list[Any]:
        await buoy.wait_signal("go")
        return [order]

    refund.__annotations__["order"] = kind
    return buoy.workflow(name="refund")(refund)


def created(workflow: buoy.Workflow[..., Any], given: bytes) -> e.WorkflowCreated:
    return e.WorkflowCreated(
        workflow=workflow.name, input=msgspec.Raw(given), version=workflow.version, policy="resume", queue="default"
    )


MISFIT = b'{"order":["x"]}'


async def planted(url: str, given: bytes = MISFIT) -> None:
    """A queued run that another process has stored, without the code."""
    async with store_at(url) as store:
        await plant(store, "run", [e.Event(seq=1, at=1.0, body=created(taking(list[str]), given))])


async def test_a_queued_run_whose_input_no_longer_fits_waits_for_code_that_takes_it(any_url: str) -> None:
    """A deploy that changes a type must not end what is queued."""
    await planted(any_url)
    async with opened(any_url, taking(list[int])) as app:
        pause = (await until_status(app, "run", "paused")).pause
        assert pause is not None and pause.reason == "input"
        assert "invalid arguments for workflow refund" in str(pause.detail) and "`$.order[0]`" in str(pause.detail)
    async with opened(any_url, taking(list[str])) as app:
        await until_event(app, "run", "signal_waited")
        await app.signal("run", "go")
        assert await result_of(app, await app.get("run")) == [["x"]]
        resumed = await bodies_of(app, "run", e.Resumed)
        assert [each.version for each in resumed] == [app.registry.need("refund").version]


async def test_code_that_does_not_take_the_input_leaves_the_run_paused(url: str) -> None:
    await planted(url)
    async with opened(url, taking(list[int])) as app:
        await until_status(app, "run", "paused")
        before = await types_of(app, "run")
        assert [await go_on_with_this_code(app) for _ in range(2)] == [0, 0]
        assert app.registry.need("refund").arguments.unfit_runs == {"run"}
        assert await types_of(app, "run") == before
        app.registry.add(taking(list[str]))
        assert await go_on_with_this_code(app) == 1
        await until_event(app, "run", "signal_waited")


async def test_a_process_remembers_a_bounded_number_of_runs_whose_input_does_not_fit(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_paused, "UNFIT_RUNS_MAX", 2)
    async with opened(url, taking(list[int])) as app:
        for number in range(5):
            await plant(app.store, f"run-{number}", [e.Event(seq=1, at=1.0, body=created(taking(list[str]), MISFIT))])
            await until_status(app, f"run-{number}", "paused")
        assert await go_on_with_this_code(app) == 0
        assert 1 <= len(app.registry.need("refund").arguments.unfit_runs) <= 2


async def test_a_run_whose_input_does_not_fit_can_be_cancelled(url: str) -> None:
    await planted(url)
    async with opened(url, taking(list[int])) as app:
        await until_status(app, "run", "paused")
        await app.cancel("run")
        await until_status(app, "run", "cancelled")


async def test_a_run_under_way_whose_input_no_longer_fits_waits_for_code_that_takes_it(url: str) -> None:
    async with opened(url, taking(str)) as app:
        await app.start_as("run", taking(str), "A-7")
        await until_event(app, "run", "signal_waited")
    async with opened(url, taking(int)) as app:
        await app.signal("run", "go")
        pause = (await until_status(app, "run", "paused")).pause
        assert pause is not None and pause.reason == "input"
        told = await explain_run(app, RunId("run"), Wording())
        assert "its input does not fit the parameters of its code" in told.headline
        assert "`$.order`" in told.wrong[0]
    async with opened(url, taking(str)) as app:
        assert await result_of(app, await app.get("run")) == ["A-7"]


# ---- the outline, by which a process without the code checks an input


def some(n: int, rate: float, name: str | None, on: bool, *words: str, tags: list[str] = [], **more: int) -> None: ...


OUTLINE = {
    "n": "int", "rate": "float", "name": "str|null", "on": "bool", "words": "list?", "tags": "list?", "more": "dict?",
}  # fmt: skip
GOOD: dict[str, Any] = {"n": 1, "rate": 1, "name": None, "on": True}


def test_an_outline_has_the_kinds_of_all_parameters() -> None:
    assert outline_of(Arguments(some, "some")) == OUTLINE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"n": "1"}, "parameter 'n' must be int, got str"),
        ({"n": True}, "parameter 'n' must be int, got bool"),
        ({"n": 1.0}, "parameter 'n' must be int, got float"),
        ({"n": None}, "parameter 'n' must be int, got null"),
        ({"rate": "1"}, "parameter 'rate' must be float, got str"),
        ({"name": 1}, "parameter 'name' must be str or null, got int"),
        ({"on": 1}, "parameter 'on' must be bool, got int"),
        ({"words": "a"}, "parameter 'words' must be list, got str"),
        ({"more": []}, "parameter 'more' must be dict, got list"),
        ({"other": 1}, "unknown parameter 'other'"),
    ],
)
def test_what_an_outline_refuses_the_code_refuses_too(change: dict[str, Any], text: str) -> None:
    with pytest.raises(buoy.BadInput, match=f"invalid arguments for workflow some: {text}; its parameters are n: int,"):
        check_input(OUTLINE, GOOD | change, "some")
    with pytest.raises(buoy.BadInput):
        Arguments(some, "some").decode(msgspec.Raw(msgspec.json.encode(GOOD | change)))


def test_a_parameter_that_is_missing_is_named() -> None:
    with pytest.raises(buoy.BadInput, match="parameter 'on' is missing"):
        check_input(OUTLINE, {name: value for name, value in GOOD.items() if name != "on"}, "some")


def test_what_an_outline_does_not_know_is_left_to_the_code() -> None:
    def other(a, b: dict[str, int], c: int | str, d: msgspec.Raw) -> None: ...  # type: ignore[no-untyped-def]

    outline = outline_of(Arguments(other, "other"))
    assert outline == {"a": "any", "b": "dict", "c": "any", "d": "any"}
    check_input(outline, {"a": 1, "b": {"x": "no number"}, "c": [], "d": None}, "other")
    check_input(OUTLINE, GOOD | {"rate": 1.5, "name": "x", "words": [1], "more": {}}, "some")


def test_outlines_have_a_limit() -> None:
    registry = Registry()
    for number in range(OUTLINES_PARAMETERS_MAX // 4 + 2):

        async def code(a: int, b: int, c: int, d: int) -> None: ...

        registry.add(buoy.workflow(name=f"w{number}")(code))
    assert sum(len(each) for each in registry.advertised()["outlines"].values()) == OUTLINES_PARAMETERS_MAX
    wide = Arguments(lambda **_: None, "wide")
    parameters = [inspect.Parameter(f"p{n}", inspect.Parameter.KEYWORD_ONLY) for n in range(OUTLINE_PARAMETERS_MAX + 1)]
    wide._signature = inspect.Signature(parameters)
    assert outline_of(wide) is None
