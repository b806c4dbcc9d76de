"""Failures: workflow code catches a failed step by the class of the original error, live and at every replay."""

from __future__ import annotations

import abc
import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.engine.authoring.failures import child_failed, class_names, step_failed

from .harness import cuts, log_of, opened, replayed, result_of, without_end


class ShopError(Exception):
    kinds: ClassVar[list[type]] = []

    def __init_subclass__(cls, **options: object) -> None:
        ShopError.kinds.append(cls)


class OutOfStock(ShopError):
    status = 404

    def __init__(self, item: str, wanted: int) -> None:
        super().__init__(f"no {item} left")
        self.item = item
        self.wanted = wanted

    def __str__(self) -> str:
        return f"{self.wanted} x {self.item}"


@buoy.step
async def ship(item: str) -> str:
    raise OutOfStock(item, 3)


@buoy.step
def parse(text: str) -> int:
    return int(text)


@buoy.step(timeout="10ms")
async def slow() -> None:
    await asyncio.Event().wait()


@buoy.step
async def silent() -> None:
    raise NotImplementedError


@buoy.step(queue="gpu")
async def far(item: str) -> str:
    raise OutOfStock(item, 2)


@buoy.step
async def note(text: str) -> str:
    return text


@buoy.workflow
async def catching() -> list[str]:
    seen: list[str] = []
    try:
        await ship("lamp")
    except OutOfStock as error:
        seen.append(await note(f"{type(error).__name__} {error}"))
    try:
        await ship("lamp")
    except ShopError as error:
        seen.append(str(isinstance(error, buoy.StepFailed)))
    try:
        await parse.call("x")
    except ValueError as error:
        seen.append(await note(str(error)))
    try:
        await slow()
    except TimeoutError:
        seen.append(await note("late"))
    return seen


@buoy.workflow
def sync_catching() -> str:
    try:
        parse("x")
    except ValueError as error:
        return str(error)
    return "?"


@buoy.workflow
async def failing_child() -> None:
    await ship("lamp")


@buoy.workflow
async def parent() -> str:
    try:
        await failing_child()
    except OutOfStock as error:
        assert isinstance(error, buoy.RunFailed)
        return await note(error.type)
    return "?"


@buoy.workflow
async def far_parent() -> str:
    try:
        await far("lens")
    except OutOfStock as error:
        assert isinstance(error, buoy.StepFailed)
        return await note(str(error))
    return "?"


@buoy.workflow
async def asks_too_much() -> str:
    try:
        await ship("lamp")
    except OutOfStock as error:
        return error.item
    return "?"


@buoy.workflow
async def uncaught() -> None:
    await ship("lamp")


@buoy.workflow
async def uncaught_silent() -> None:
    await silent()


ALL = [catching, sync_catching, failing_child, parent, far_parent, asks_too_much, uncaught, uncaught_silent]


@pytest.mark.parametrize("workflow", [catching, sync_catching, parent, far_parent])
async def test_a_failure_is_caught_by_its_original_class_live_and_at_every_replay(workflow: Any, url: str) -> None:
    async with buoy.open(url, workflows=[*ALL, far], queues=("default", "gpu")) as app:
        result = await result_of(app, await app.start_as("original", workflow))
        log = await log_of(app, "original")
    assert "?" not in result
    for piece in cuts(log):
        appended = await replayed(workflow, piece)
        assert not [body for body in appended if isinstance(body, e.Paused)], f"cut after event {len(piece)}"
    last = await replayed(workflow, without_end(log))
    assert last[-1].result == log[-1].body.result


async def test_what_the_code_sees_has_the_text_of_the_failed_step(url: str) -> None:
    async with opened(url, *ALL) as app:
        assert await result_of(app, await app.start(catching)) == [
            "StepFailed ship#1 failed: OutOfStock: 3 x lamp",
            "True",
            "parse#1 failed: ValueError: invalid literal for int() with base 10: 'x'",
            "late",
        ]


async def test_attributes_of_the_original_error_are_refused_with_advice(url: str) -> None:
    assert "'item' of the original error is not recorded" in await failure_text(url, asks_too_much)


async def test_a_log_without_classes_replays_as_it_was_recorded() -> None:
    info = e.ErrorInfo(type="ValueError", message="no")
    seen = step_failed(e.StepFailed(leaf=LeafId("a#1"), error=info), catching.fn)
    assert type(seen) is buoy.StepFailed


async def test_a_class_of_the_workflows_file_is_found_under_another_module_name() -> None:
    """A script calls it `__main__`; a worker that loads the same file does not."""
    classes = tuple(name.replace(__name__, "buoy_file_0123") for name in class_names(OutOfStock("lamp", 3)))
    info = e.ErrorInfo(type="OutOfStock", message="no", classes=classes)
    assert classes[0] == "buoy_file_0123:OutOfStock"
    assert isinstance(step_failed(e.StepFailed(leaf=LeafId("a#1"), error=info), catching.fn), OutOfStock)


async def test_no_code_of_the_original_class_runs_when_its_failure_is_seen() -> None:
    before = list(ShopError.kinds)
    info = e.ErrorInfo(type="OutOfStock", message="no", classes=class_names(OutOfStock("lamp", 3)))
    for _ in range(2):
        step_failed(e.StepFailed(leaf=LeafId("a#1"), error=info), catching.fn)
    assert ShopError.kinds == before


# ---- which classes are joined


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Abstract(KeyError, metaclass=abc.ABCMeta):
    @abc.abstractmethod
    def never(self) -> None: ...


class Slotted(OSError):
    __slots__ = ("extra",)


class Made(Exception):
    def __new__(cls, first: int, second: int) -> Made:
        return super().__new__(cls)


def local() -> Exception:
    class Local(LookupError): ...

    return Local("x")


JOINED: list[tuple[Exception, type[Exception]]] = [
    (KeyError("k"), KeyError),
    (OSError("x"), OSError),
    (FileNotFoundError(2, "none"), FileNotFoundError),
    (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), UnicodeDecodeError),
    (ImportError("x", name="y"), ImportError),
    (MemoryError(), MemoryError),
    (Frozen(3), Frozen),
    (type("Concrete", (Abstract,), {"never": None})("x"), Abstract),
    (Slotted("x"), Slotted),
    (Made(1, 2), Made),
    (local(), LookupError),
    (msgspec.ValidationError("x"), msgspec.ValidationError),
]


@pytest.mark.parametrize(("error", "kind"), JOINED, ids=lambda value: str(getattr(value, "__name__", "")))
def test_an_error_is_joined_with_the_nearest_class_that_is_loaded(error: Exception, kind: type[Exception]) -> None:
    info = e.ErrorInfo(type=type(error).__name__, message="m", classes=class_names(error))
    seen = step_failed(e.StepFailed(leaf=LeafId("a#1"), error=info, attempt=2), None)
    assert isinstance(seen, kind) and isinstance(seen, buoy.StepFailed)
    assert str(seen) == f"a#1 failed: {type(error).__name__}: m"
    assert (seen.step, seen.type, seen.attempts, seen.reason) == ("a#1", type(error).__name__, 2, "m")
    finished = e.ChildFinished(leaf=LeafId("c#1"), child=RunId("c"), status="failed", error=info)
    run_failed = child_failed(finished, None, is_step=False)
    assert isinstance(run_failed, kind) and isinstance(run_failed, buoy.RunFailed)


class OwnBadInput(buoy.BadInput, ValueError): ...


@pytest.mark.parametrize(
    "error",
    [
        StopIteration(1), StopAsyncIteration(1), GeneratorExit(), KeyboardInterrupt(), SystemExit(1),
        ExceptionGroup("g", [ValueError()]), SyntaxError("x"), Exception("plain"), buoy.BadInput("x"), OwnBadInput("x"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_these_errors_stay_plain_failures_of_a_step(error: BaseException) -> None:
    info = e.ErrorInfo(type=type(error).__name__, message="m", classes=class_names(error))
    assert info.classes == ()
    # Nor when a log that was written by hand names them.
    named = tuple(f"{each.__module__}:{each.__qualname__}" for each in type(error).__mro__)
    for each in (info, msgspec.structs.replace(info, classes=named)):
        seen = step_failed(e.StepFailed(leaf=LeafId("a#1"), error=each), None)
        assert not isinstance(seen, buoy.BadInput | StopIteration | SyntaxError | BaseExceptionGroup)
        assert isinstance(seen, buoy.StepFailed)


# ---- the words


async def failure_text(url: str, workflow: Any, **options: Any) -> str:
    async with buoy.open(url, workflows=[workflow, far], **options) as app:
        with pytest.raises(buoy.RunFailed) as caught:
            await (await app.start_as("run", workflow)).result()
    return str(caught.value)


async def test_a_run_that_failed_names_the_class_of_the_error_once(url: str) -> None:
    assert await failure_text(url, uncaught) == "run run failed: OutOfStock: ship#1 failed: 3 x lamp"


async def test_an_error_without_a_text_is_named_once(url: str) -> None:
    assert await failure_text(url, uncaught_silent) == "run run failed: NotImplementedError: silent#1 failed"


@buoy.workflow
async def far_uncaught() -> None:
    await far("lens")
    await far("lens")


async def test_a_step_that_failed_elsewhere_is_named_once(url: str) -> None:
    text = await failure_text(url, far_uncaught, queues=("default", "gpu"))
    assert text == "run run failed: OutOfStock: far#1 failed: 2 x lens"
