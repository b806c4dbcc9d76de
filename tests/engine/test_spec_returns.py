"""Going back in runs of specs: what runs again follows from the spec, not from when it ran."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e
from buoy.engine.client.client import Client, Run
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import SpecWorkflow, spec_of
from buoy.wiring.app import open_client

from . import spec_functions
from .harness import bodies_of, cuts, log_of, plant, renamed, result_of, state_of, store_at, until, until_status
from .spec_functions import RAN, times

FUNCTIONS = "tests.engine.spec_functions"
OPTIONS = buoy.RunnerOptions(stop_grace_s=2.0, calls=("tests",))


@pytest.fixture(autouse=True)
def forget_what_ran() -> None:
    RAN.clear()


def spec(text: str, name: str = "x") -> SpecWorkflow:
    return spec_of(SpecSource("test.yaml", f"name: {name}\n{text.replace('F:', f'{FUNCTIONS}:')}"), calls=None)


@asynccontextmanager
async def opened(url: str, *workflows: SpecWorkflow) -> AsyncIterator[Client]:
    async with buoy.open(url, workflows=workflows, options=OPTIONS, specs=True) as app:
        yield app


def counts(*leaves: str) -> list[int]:
    return [times("r1", leaf) for leaf in leaves]


async def ended(app: Client, run: Run[Any], status: str = "completed") -> None:
    await until(lambda: _is(run, status), f"the run to be {status}")
    assert (await state_of(app, run.id)).anomalies == []


async def _is(run: Run[Any], status: str) -> bool:
    return (await run.document()).status == status


DIAMOND = """
steps:
  - {id: a, call: "F:value", needs: []}
  - {id: b, call: "F:value", needs: [a], with: {x: 2}}
  - {id: c, call: "F:value", needs: [a], with: {x: 3}}
  - {id: d, call: "F:value", needs: [b, c], with: {x: "{{ steps.b }}"}}
  - {id: e, call: "F:value", needs: [c]}
"""


async def test_of_a_diamond_only_what_depends_on_the_step_runs_again(any_url: str) -> None:
    workflow = spec(DIAMOND)
    async with opened(any_url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await result_of(app, run)
        plan = await app.plan_retry("r1", "b")
        assert (plan.to, set(plan.again), plan.kept) == ("b#1", {"b#1", "d#1"}, ())
        assert set(plan.spared) <= {"c#1", "e#1"}
        assert plan.definition == workflow.version
        assert await app.jump("r1", "b") == plan
        await ended(app, run)
        assert counts("a#1", "b#1", "c#1", "d#1", "e#1") == [1, 2, 1, 2, 1]
        await app.jump("r1", "a#1")
        await ended(app, run)
        assert counts("a#1", "b#1", "c#1", "d#1", "e#1") == [2, 3, 2, 3, 2]
        await app.jump("r1", "e")
        await ended(app, run)
        assert counts("a#1", "b#1", "c#1", "d#1", "e#1") == [2, 3, 2, 3, 3]
        (jump, *_) = [event for event in await log_of(app, "r1") if isinstance(event.body, e.BranchCreated)]
        keys = {each.key for each in await bodies_of(app, "r1", e.StepStarted) if each.leaf == "b#1"}
    assert keys == {"r1/b#1/0", "r1/b#1/1", "r1/b#1/2"}
    assert isinstance(jump.body, e.BranchCreated)
    assert set(jump.body.dropped) == {"b#1", "d#1"}


async def test_a_retry_runs_everything_that_failed_and_nothing_that_completed(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = spec(
        """
steps:
  - {id: a, call: "F:value", needs: []}
  - {id: b, call: "F:fails", needs: [a]}
  - {id: c, call: "F:fails", needs: []}
  - {id: d, call: "F:value", needs: [a]}
  - {id: e, call: "F:value", needs: [b, d]}
"""
    )
    async with opened(any_url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await ended(app, run, "failed")
        plan = await app.plan_retry("r1")
        assert set(plan.again) == {"b#1", "c#1"}
        assert app.runner is not None
        app.runner.specs.kit.calls._found.clear()
        monkeypatch.setattr(spec_functions, "fails", spec_functions.value)
        await app.retry("r1")
        await ended(app, run)
    assert counts("a#1", "b#1", "c#1", "d#1", "e#1") == [1, 2, 2, 1, 1]


MODULES = """
steps:
  - id: s
    needs: []
    modules:
      - {id: a, call: "F:value", with: {x: 1}}
      - {id: b, ask: {title: "Go?", kind: confirm}}
      - {id: c, call: "F:value", with: {x: "{{ modules.a }}"}}
  - {id: beside, call: "F:value", needs: []}
  - {id: t, call: "F:value", needs: [s]}
"""


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("s/c#1", [1, 2, 2, 1]),
        ("t", [1, 1, 2, 1]),
        ("beside", [1, 1, 1, 2]),
    ],
)
async def test_a_jump_into_modules_keeps_those_before_and_what_stands_beside(
    to: str, expected: list[int], any_url: str
) -> None:
    workflow = spec(MODULES)
    async with opened(any_url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        await run.answer(True)
        await ended(app, run)
        await app.jump("r1", to)
        await ended(app, run)
    assert counts("s/a#1", "s/c#1", "t#1", "beside#1") == expected


@pytest.mark.parametrize("to", ["s/b#1", "s/b/ask#1", "s"])
async def test_a_jump_before_a_question_asks_it_again_under_a_new_id(to: str, url: str) -> None:
    workflow = spec(MODULES)
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        await run.answer(True)
        await ended(app, run)
        await app.jump("r1", to)
        state = await until_status(app, "r1", "awaiting_input")
        assert [leaf.question_id for leaf in state.questions()] == ["r1/s/b/ask#1/1"]
        await run.answer(False)
        await ended(app, run)
    assert counts("s/a#1", "s/c#1", "t#1", "beside#1") == [2 if to == "s" else 1, 2, 2, 1]


ASK_CHAIN = """
steps:
  - {id: a, call: "F:value", needs: []}
  - {id: q, ask: {title: "Go?", kind: confirm}, needs: [a]}
  - {id: t, call: "F:value", needs: [q], with: {x: 4}}
"""


@pytest.mark.parametrize(("text", "to"), [(ASK_CHAIN, "a"), (ASK_CHAIN, "q"), (MODULES, "s"), (MODULES, "s/b")])
async def test_kept_answers_are_not_asked_for_again_wherever_the_run_goes_back_to(text: str, to: str, url: str) -> None:
    workflow = spec(text)
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        await run.answer(True)
        await ended(app, run)
        await app.jump("r1", to + "#1", keep_answers=True)
        await ended(app, run)
        log = await log_of(app, "r1")
        assert sum(event.type == "interaction_requested" for event in log) == 1
    assert times("r1", "t#1") == 2
    # A crash at any point after the jump comes to the same end, and asks no question.
    branch = next(event.seq for event in log if isinstance(event.body, e.BranchCreated))
    for number, cut in enumerate(each for each in cuts(log) if len(each) >= branch):
        name = f"cut{number}"
        async with store_at(url) as store:
            await plant(store, name, renamed(cut, "r1", name))
        async with opened(url, workflow) as app:
            await ended(app, await app.get(name))
            asked = await bodies_of(app, name, e.InteractionRequested)
            assert len(asked) == 1


async def test_a_question_beside_the_step_stays_open_with_its_id(url: str) -> None:
    workflow = spec(
        """
steps:
  - {id: a, call: "F:value", needs: []}
  - {id: q, ask: {title: "Go?", kind: confirm}, needs: []}
"""
    )
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        await app.jump("r1", "a")
        await until(lambda: times("r1", "a#1") == 2, "the step to run again")
        state = await until_status(app, "r1", "awaiting_input")
        assert [leaf.question_id for leaf in state.questions()] == ["r1/q/ask#1/0"]
        await run.answer(True)
        await ended(app, run)


async def test_every_crash_after_a_jump_runs_only_what_is_left(url: str) -> None:
    workflow = spec(DIAMOND)
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await result_of(app, run)
        await app.jump("r1", "c")
        await ended(app, run)
        log = await log_of(app, "r1")
    branch = next(event.seq for event in log if isinstance(event.body, e.BranchCreated))
    for number, cut in enumerate(each for each in cuts(log) if len(each) >= branch):
        name = f"cut{number}"
        async with store_at(url) as store:
            await plant(store, name, renamed(cut, "r1", name))
        done = {each.body.leaf for each in cut[branch:] if isinstance(each.body, e.StepCompleted)}
        RAN.clear()
        async with opened(url, workflow) as app:
            await ended(app, await app.get(name))
        assert {leaf for _, leaf, _ in RAN} == {"c#1", "d#1", "e#1"} - done


# ---- another definition


BROKEN = """
steps:
  - {id: a, call: "F:value", needs: [], with: {x: 1}}
  - {id: b, call: "F:fails", needs: [a]}
"""
MENDED = """
steps:
  - {id: a, call: "F:value", needs: [], with: {x: 1}}
  - {id: b, call: "F:value", needs: [a], with: {x: "{{ steps.a }}"}}
  - {id: c, call: "F:value", needs: [b]}
"""


async def test_a_retry_goes_on_with_a_changed_spec_if_that_is_said(any_url: str) -> None:
    workflow, mended = spec(BROKEN), spec(MENDED)
    async with opened(any_url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await ended(app, run, "failed")
    async with open_client(any_url) as client:
        plan = await client.plan_retry("r1", spec=mended)
        assert (plan.definition, plan.again) == (mended.version, ("b#1",))
        assert await client.store.definition(mended.version) is None
        assert await client.retry("r1", spec=mended) == plan
    async with opened(any_url) as app:
        run = await app.get("r1")
        await ended(app, run)
        assert (await run.document()).version == mended.version
        bound = await bodies_of(app, "r1", e.VersionBound)
        assert [(each.version, each.previous) for each in bound] == [(mended.version, workflow.version)]
    assert counts("a#1", "b#1", "c#1") == [1, 2, 1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MENDED.replace("x: 1", "x: 2"), r"a#1 was called with \{\"x\":1\}, and the code now calls it with"),
        (MENDED.replace("id: a", "id: z").replace("[a]", "[z]").replace("steps.a", "steps.z"), "has no step 'a'"),
        (MENDED.replace("needs: [], with", "needs: [c], with").replace("needs: [a]", "needs: []").replace(
            "{{ steps.a }}", "1").replace("needs: [b]", "needs: []"), "before all that it needs is over"),
    ],
)  # fmt: skip
async def test_a_spec_that_does_not_fit_is_refused_with_the_difference(text: str, why: str, url: str) -> None:
    workflow = spec(BROKEN)
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await ended(app, run, "failed")
        length = len(await log_of(app, "r1"))
        for attempt in (app.plan_retry, app.retry):
            with pytest.raises(buoy.BadInput, match=why):
                await attempt("r1", spec=spec(text))
        with pytest.raises(buoy.BadInput, match="the names must be the same"):
            await app.retry("r1", spec=spec(MENDED, "other"))
        assert len(await log_of(app, "r1")) == length


async def test_a_renamed_step_of_a_spec_is_migrated_with_its_modules_and_its_question(any_url: str) -> None:
    workflow = spec(MODULES)
    text = MODULES.replace("id: s\n", "id: gather\n").replace("[s]", "[gather]").replace("id: a,", "id: first,")
    changed = spec(text.replace("modules.a", "modules.first"))
    async with opened(any_url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
    async with open_client(any_url) as client:
        with pytest.raises(buoy.BadInput, match="say --spec FILE"):
            await client.migrate("r1", {"s": "gather"})
        with pytest.raises(buoy.BadInput, match="does not fit what run r1 has done"):
            await client.migrate("r1", {"s": "gather"}, spec=changed)
        await client.migrate("r1", {"s": "gather", "s/a": "gather/first"}, spec=changed)
    async with opened(any_url) as app:
        run = await app.get("r1")
        state = await state_of(app, "r1")
        assert [(leaf.id, leaf.question_id) for leaf in state.questions()] == [("gather/b/ask#1", "r1/s/b/ask#1/0")]
        await app.answer("r1", True, "r1/s/b/ask#1/0")
        await ended(app, run)
    assert counts("s/a#1", "gather/first#1", "gather/c#1", "t#1") == [1, 0, 1, 1]


# ---- the definition is gone


async def without_definition(url: str, version: str, tmp_path: Path) -> None:
    """As an older store, a half restored backup or a person with a shell may leave it."""
    if url.startswith("file://"):
        for path in Path(url.removeprefix("file://")).rglob(f"*{version}*"):
            path.unlink()
        return
    import sqlite3

    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        assert connection.execute("DELETE FROM definitions WHERE version = ?", (version,)).rowcount == 1


async def test_a_run_whose_definition_is_gone_is_held_and_goes_on_when_it_is_back(any_url: str, tmp_path: Path) -> None:
    workflow = spec(ASK_CHAIN)
    async with opened(any_url, workflow) as app:
        await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
    await without_definition(any_url, workflow.version, tmp_path)
    async with opened(any_url) as app:
        await app.answer("r1", True)
        state = await until_status(app, "r1", "paused")
        assert state.pause is not None
        assert state.pause.reason == "version"
        assert workflow.version in str(state.pause.detail)
        assert "is not in" in str(state.pause.detail)
    async with opened(any_url) as app:
        assert (await state_of(app, "r1")).status == "paused"
        await app.store.define(workflow.version, workflow.stored)
    async with opened(any_url) as app:
        await ended(app, await app.get("r1"))
    assert counts("a#1", "t#1") == [1, 1]


async def test_a_run_whose_definition_is_gone_falls_back_to_the_one_it_began_with(url: str, tmp_path: Path) -> None:
    workflow, mended = spec(BROKEN), spec(MENDED)
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await ended(app, run, "failed")
    async with open_client(url) as client:
        await client.retry("r1", spec=mended)
    await without_definition(url, mended.version, tmp_path)
    async with opened(url) as app:
        run = await app.get("r1")
        await ended(app, run, "failed")
        bound = [each.version for each in await bodies_of(app, "r1", e.VersionBound)]
        assert bound == [mended.version, workflow.version]
    assert counts("a#1", "b#1") == [1, 2]


async def test_a_run_whose_definition_is_gone_can_be_cancelled(url: str, tmp_path: Path) -> None:
    workflow = spec(ASK_CHAIN)
    async with opened(url, workflow) as app:
        await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
    await without_definition(url, workflow.version, tmp_path)
    async with opened(url) as app:
        await app.cancel("r1", "never mind")
        state = await until_status(app, "r1", "cancelled")
        assert state.anomalies == []
        await until(lambda: _let_go(app), "the runner to let go")


async def _let_go(app: Client) -> bool:
    return (await app.record("r1")).holder is None


async def test_a_run_whose_definition_is_gone_cannot_be_retried_without_another(url: str, tmp_path: Path) -> None:
    workflow = spec(BROKEN)
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await ended(app, run, "failed")
    await without_definition(url, workflow.version, tmp_path)
    async with open_client(url) as client:
        with pytest.raises(buoy.WrongState, match=r"is not in .* say --spec FILE"):
            await client.retry("r1")
        await client.retry("r1", spec=spec(MENDED))
    async with opened(url) as app:
        await ended(app, await app.get("r1"))
