"""Results: what a workflow or step returns fits its annotation, or is a failure that says so."""

from __future__ import annotations

from typing import Any

import pytest

import buoy
from buoy.core.log import events as e

from .harness import bodies_of, opened, outcome_of, result_of, types_of

WRONG: list[tuple[Any, Any, str]] = [
    (int, "text", "Expected `int`, got `str`"),
    (str, None, "Expected `str`, got `null`"),
    (list[int], ["a"], r"Expected `int`, got `str` - at `\$\[0\]`"),
    (dict[str, int], [1], "Expected `object`, got `array`"),
]


def annotated(kind: Any, value: Any, *, is_async: bool) -> buoy.Workflow[..., Any]:
    async def flow() -> Any:
        return value

    def plain() -> Any:
        return value

    fn: Any = flow if is_async else plain
    fn.__annotations__["return"] = kind
    return buoy.workflow(name="flow")(fn)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(("kind", "value", "expected"), WRONG, ids=[str(each[0]) for each in WRONG])
async def test_a_result_that_does_not_fit_its_annotation_fails_the_run(
    url: str, kind: Any, value: Any, expected: str, is_async: bool
) -> None:
    flow = annotated(kind, value, is_async=is_async)
    async with opened(url, flow) as app:
        run = await app.start(flow)
        with pytest.raises(buoy.RunFailed, match=f"the result of workflow flow does not fit: {expected}"):
            await result_of(app, run)
        assert (await types_of(app, run.id))[-1] == "workflow_failed"


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 5), (Any, {"a": [1]}), (None, None), (str | None, None), (float, 3), (tuple[int, ...], (1, 2))],
    ids=str,
)
async def test_a_result_that_fits_is_read_back_as_it_was(url: str, kind: Any, value: Any) -> None:
    flow = annotated(kind, value, is_async=True)
    async with opened(url, flow) as app:
        assert await result_of(app, await app.start(flow)) == value


async def test_a_result_that_does_not_fit_undoes_what_was_done(url: str) -> None:
    @buoy.step
    async def undo(result: int) -> None:
        pass

    @buoy.step(compensate=undo)
    async def act() -> int:
        return 1

    @buoy.workflow
    async def flow() -> int:
        await act()
        return "no number"  # type: ignore[return-value]

    async with opened(url, flow) as app:
        run = await app.start(flow)
        assert await outcome_of(app, run) == ("failed", "BadInput")
        assert await bodies_of(app, run.id, e.CompensationCompleted)


async def test_a_step_that_returns_nothing_against_its_annotation_fails_live_as_it_would_at_a_replay(url: str) -> None:
    @buoy.step
    async def forgets() -> int:
        pass  # type: ignore[empty-body]

    @buoy.workflow
    async def flow() -> str:
        try:
            await forgets()
        except buoy.StepFailed as error:
            return str(error)
        return "no failure"

    async with opened(url, flow) as app:
        assert "Expected `int`, got `null`" in await result_of(app, await app.start(flow))
