"""Likely slips of an author: each is refused where it is made, in words that say what to write instead."""

from __future__ import annotations

import enum
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.core.limits import QUESTION_BYTES_MAX, QUESTION_TITLE_CHARS_MAX
from buoy.core.log.codec import encode_events
from buoy.engine.authoring.context import CURRENT, StepContext, Unheard

from .harness import log_of, opened, result_of, until_event

LONE = "caf\udce9"


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Old(str, enum.Enum):  # noqa: UP042 - as people wrote it before 3.11
    A = "a"


# ---- calls in workflow code

CALLS: list[tuple[str, Callable[[], Any], str]] = [
    ("ints", lambda: buoy.ask("pick", kind="choose", options=[1, 2]), "option 1 of question 'pick' must be a text: 1"),  # type: ignore[list-item]
    ("enum", lambda: buoy.ask("pick", options=[Colour.RED]), "option 1 of question 'pick' must be a text: <Colour.RED"),  # type: ignore[list-item]
    ("one text", lambda: buoy.ask("pick", options="abc"), "the options of question 'pick' must be a list of texts: 'a"),  # type: ignore[arg-type]
    ("number", lambda: buoy.ask("pick", options=5), "the options of question 'pick' must be a list of texts: 5"),  # type: ignore[arg-type]
    ("no option", lambda: buoy.ask("pick", kind="choose"), "a question of kind 'choose' needs options"),
    (
        "kind",
        lambda: buoy.ask("pick", kind="chose"),
        "unknown kind 'chose' of question 'pick'; choose confirm, choose,",
    ),  # type: ignore[arg-type]
    ("kind list", lambda: buoy.ask("pick", kind=[]), r"unknown kind \[\] of question 'pick'"),  # type: ignore[arg-type]
    ("detail", lambda: buoy.ask("pick", detail={"a": 1}), "the detail of question 'pick' must be a text: {'a': 1}"),  # type: ignore[arg-type]
    ("title", lambda: buoy.ask(5), "the title of a question must be a text: 5"),  # type: ignore[arg-type]
    ("no title", lambda: buoy.ask(" "), "a question needs a title"),
    ("long title", lambda: buoy.ask("x" * (QUESTION_TITLE_CHARS_MAX + 1)), "the title .* 1,001 .* `detail`"),
    ("long", lambda: buoy.ask("a", detail="x" * QUESTION_BYTES_MAX), "question 'a' has .* bytes, the limit is"),
    (
        "surrogate",
        lambda: buoy.ask(LONE),
        r"the title of a question cannot be stored: 'caf\\udce9' has a",
    ),
    ("its detail", lambda: buoy.ask("a", detail=LONE), "the detail of question 'a' cannot be stored"),
    ("its option", lambda: buoy.ask("a", options=["b", LONE]), "option 2 of question 'a' cannot be stored"),
    ("schema", lambda: buoy.ask("a", schema="x"), r"the schema of question 'a' must be a dict \(JSON Schema\): 'x'"),  # type: ignore[arg-type]
    ("in schema", lambda: buoy.ask("a", schema={"x": object()}), "the schema of question 'a' cannot be stored as JSON"),
    ("in schema too", lambda: buoy.ask("a", schema={"title": LONE}), "the schema of question 'a' cannot be stored"),
    ("no schema", lambda: buoy.ask("a", kind="form"), "a question of kind 'form' needs a schema"),
    ("signal", lambda: buoy.wait_signal(5), "a signal name must be a text: 5"),  # type: ignore[arg-type]
    ("signal name", lambda: buoy.wait_signal(LONE), "signal name .* is not allowed"),
    ("timeout", lambda: buoy.wait_signal("go", timeout="soon"), "timeout 'soon' is not a duration"),
    ("sleep", lambda: buoy.sleep(float("nan")), "sleep nan must not be negative or endless"),
    ("child", lambda: buoy.start_child(a_step, 1), "buoy.start_child takes a workflow: <step a_step>; call the step"),  # type: ignore[arg-type]
    ("child name", lambda: buoy.start_child("w"), "buoy.start_child takes a workflow: 'w'; pass the function"),  # type: ignore[arg-type]
    ("child arguments", lambda: buoy.start_child(a_child, "x", 1), "invalid arguments for workflow a_child: too many"),  # type: ignore[call-arg]
    (
        "child's surrogate",
        lambda: buoy.start_child(a_child, LONE),
        "the arguments of workflow a_child cannot be stored",
    ),
    ("argument", lambda: a_step(object()), "the arguments of step a_step .*object has no JSON form; pass plain data"),  # type: ignore[arg-type]
]


@buoy.step
async def a_step(a: int) -> int:
    return a


@buoy.workflow
async def a_child(a: str) -> str:
    return a


@pytest.mark.parametrize(("call", "expected"), [each[1:] for each in CALLS], ids=[each[0] for each in CALLS])
async def test_a_wrong_call_is_seen_by_the_code_and_writes_nothing(
    url: str, call: Callable[[], Any], expected: str
) -> None:
    @buoy.workflow
    async def careful() -> str:
        try:
            await call()
        except buoy.UserError as error:
            return str(error).replace("\udce9", "?")
        return "no error"

    @buoy.workflow
    def careless() -> Any:
        return call()

    async with opened(url, careful, careless, a_child) as app:
        text = await result_of(app, await app.start_as("careful", careful))
        assert re.match(expected, text)
        await app.start_as("careless", careless)
        with pytest.raises(buoy.RunFailed, match=expected):
            await result_of(app, await app.get("careless"))
        for run in ("careful", "careless"):
            encode_events(await log_of(app, run))
        assert len((await app.runs()).runs) == 2


@pytest.mark.parametrize("options", [Word, [Word.YES, Word.NO], list(Old), ("a", Word.YES)])
async def test_enums_of_texts_are_options(url: str, options: Any) -> None:
    @buoy.workflow
    async def flow() -> str:
        return str(await buoy.ask("pick", options=options))

    expected = [str(getattr(each, "value", each)) for each in options]
    async with opened(url, flow) as app:
        run = await app.start(flow)
        (asked,) = [event.body for event in await until_event(app, run.id, "interaction_requested")][-1:]
        assert list(asked.question.options) == expected  # type: ignore[union-attr]
        await run.answer(expected[0])
        assert await result_of(app, run) == expected[0]


async def test_a_schema_is_stored_as_the_plain_json_that_it_means(url: str) -> None:
    @buoy.workflow
    async def flow() -> Any:
        return await buoy.ask("pick", schema={"type": "object", "required": ("a",)})

    async with opened(url, flow) as app:
        run = await app.start(flow)
        await run.question()
        with pytest.raises(buoy.BadInput, match="'a' is a required property"):
            await run.answer({})
        await run.answer({"a": 1})
        assert await result_of(app, run) == {"a": 1}


# ---- progress


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("half",), "done of buoy.progress must be a number: 'half'"),
        ((1, "ten"), "total of buoy.progress must be a number: 'ten'"),
        ((True,), "done of buoy.progress must be a number: True"),
        ((float("nan"),), "done of buoy.progress must be a number: nan"),
        ((1, 2, 5), "the note of buoy.progress must be a text: 5"),
    ],
)
def test_wrong_progress_is_refused_also_in_a_unit_test(given: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(buoy.BadInput, match=expected):
        buoy.progress(*given)


class OtherNumber(float):
    pass


def test_progress_is_told_in_plain_numbers_and_storable_text() -> None:
    told: list[Any] = []

    class Heard(Unheard):
        def progressed(self, *given: Any) -> None:
            told.append(given)

    token = CURRENT.set(StepContext(RunId("r"), LeafId("a#1"), "a", 1, "k", Heard()))
    try:
        buoy.progress(OtherNumber(1.5), 10, f"at {LONE}" + "x" * 600)
    finally:
        CURRENT.reset(token)
    ((leaf, done, total, note),) = told
    assert (leaf, done, type(done), total) == ("a#1", 1.5, float, 10)
    assert note.startswith(r"at caf\udce9xxx")


# ---- starting and opening


async def test_a_start_of_what_is_no_workflow_is_refused_with_advice(url: str) -> None:
    async with opened(url, a_child) as app:
        with pytest.raises(buoy.BadInput, match="start takes a workflow: 'a_child'; pass the function that has"):
            await app.start("a_child", "x")  # type: ignore[arg-type]
        with pytest.raises(buoy.BadInput, match="start takes a workflow: <step a_step>; call the step from a workflow"):
            await app.start(a_step, 1)  # type: ignore[arg-type]
        with pytest.raises(buoy.BadInput, match="start_as takes a workflow: 'a_child'"):
            await app.start_as("r", "a_child", "x")  # type: ignore[arg-type]
        with pytest.raises(buoy.BadInput, match="a run id must be a text: 7"):
            await app.start_as(7, a_child, "x")  # type: ignore[arg-type]


async def test_opening_with_what_is_no_workflow_is_refused_with_advice(url: str) -> None:
    with pytest.raises(buoy.BadInput, match="workflows= takes workflows, and steps that have a queue: <step a_step>"):
        async with opened(url, a_child, a_step):  # type: ignore[arg-type]
            pass
    with pytest.raises(buoy.BadInput, match="workflows= takes a workflow: 'a_child'"):
        async with opened(url, "a_child"):  # type: ignore[arg-type]
            pass
    async with buoy.open(url, workflows=a_child) as app:  # type: ignore[arg-type]
        assert await result_of(app, await app.start(a_child, "x")) == "x"


# ---- declaring


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"retries": "3"}, "invalid retries='3'; write a whole number from 0 to 1000"),
        ({"retries": 1.0}, "invalid retries=1.0"),
        ({"retries": True}, "invalid retries=True"),
        ({"retries": -1}, "invalid retries=-1"),
        ({"backoff_factor": "2"}, "invalid backoff_factor='2'; write a number above 0"),
        ({"backoff_factor": float("inf")}, "invalid backoff_factor=inf"),
        ({"backoff": "soon"}, "backoff 'soon' is not a duration"),
        ({"timeout": [1]}, r"timeout \[1\] is not a duration"),
        ({"never_retry": ("ValueError",)}, "invalid never_retry: 'ValueError' is not an exception class"),
        ({"classify": "transient"}, "invalid classify='transient'; pass a function"),
        ({"name": 5}, "a step name must be a text: 5"),
        ({"queue": 5}, "a queue name must be a text: 5"),
        ({"compensate": len}, "must be a step"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_option_of_a_step_is_refused_by_name(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(buoy.BadInput, match=expected):
        buoy.step(**options)(lambda_free)


def lambda_free(a: int) -> int:
    return a


def test_one_exception_class_needs_no_tuple() -> None:
    assert buoy.step(never_retry=ValueError)(lambda_free).retry.never_on == (ValueError,)


class Shop:
    def method(self, x: int) -> int:
        return x

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    @staticmethod
    async def static(x: int) -> int:
        return x


def generator(n: int) -> Iterator[int]:
    yield n


async def async_generator(n: int) -> AsyncIterator[int]:
    yield n


DECLARED: list[tuple[Any, str]] = [
    (Shop.method, "a {kind} cannot be a method: Shop.method; make it a function, and pass what it needs as arguments"),
    (Shop.__dict__["of_class"], "a {kind} cannot be a method: "),
    (generator, "a {kind} cannot be a generator: generator has a `yield`; return a list"),
    (async_generator, "a {kind} cannot be a generator: async_generator has a `yield`"),
    (lambda n: n, r"a lambda has no name; write buoy\.{kind}\(name=...\)\(lambda ...\), or use a `def`"),
    (Shop, "@buoy.{kind} takes a function: <class .*Shop.*put it on a `def`"),
    ("charge", "@buoy.{kind} takes a function: 'charge'"),
    (a_step, "@buoy.{kind} takes a function: <step a_step>"),
    (a_child, "@buoy.{kind} takes a function: <workflow a_child"),
]


@pytest.mark.parametrize("kind", ["step", "workflow"])
@pytest.mark.parametrize(("fn", "expected"), DECLARED, ids=[expected[:50] for _, expected in DECLARED])
def test_what_can_never_work_is_refused_at_its_declaration(kind: str, fn: Any, expected: str) -> None:
    with pytest.raises(buoy.BadInput, match=expected.format(kind=kind)):
        getattr(buoy, kind)(fn)


def test_a_lambda_with_a_name_and_a_static_method_are_functions() -> None:
    assert buoy.step(name="double")(lambda n: 2 * n)(4) == 8
    assert buoy.step(Shop.__dict__["static"]).is_async
