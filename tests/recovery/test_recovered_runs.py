"""A damaged run is recovered and driven to its end: at every cut of its log, under every lie of its document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import ACTIVE, Status
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import SpecWorkflow, spec_of
from buoy.ports.records import Released, Write
from buoy.recovery.recover import recover_run
from tests.engine.harness import bodies_of, cuts, log_of, renamed, result_of, until_status
from tests.engine.spec_functions import RAN
from tests.patience import PATIENCE_S

from .harness import KINDS

OPTIONS = buoy.RunnerOptions(stop_grace_s=2.0, calls=("tests",))
DONE: list[tuple[str, str]] = []


@buoy.step
async def note(name: str) -> str:
    info = buoy.info()
    DONE.append((info.run_id, str(info.leaf)))
    return name


@buoy.workflow
async def asking() -> str:
    first = await note("first")
    beside = await asyncio.gather(note("left"), note("right"))
    answer = await buoy.ask("Continue?", kind="confirm")
    last = await note("last")
    return f"{first} {beside} {answer} {last}"


SPEC = """
name: asks
steps:
  - id: begin
    needs: []
    call: "tests.engine.spec_functions:value"
    with: {x: 1}
  - id: gather
    needs: [begin]
    modules:
      - {id: fetch, call: "tests.engine.spec_functions:value", with: {x: 2}}
      - {id: review, ask: {title: "Publish?", options: ["yes", "no"]}}
      - {id: send, call: "tests.engine.spec_functions:value", with: {x: 3}}
  - id: beside
    needs: []
    call: "tests.engine.spec_functions:value"
    with: {x: 4}
"""


@asynccontextmanager
async def driven(url: str, workflow: Any) -> AsyncIterator[Client]:
    async with buoy.open(url, workflows=[workflow], options=OPTIONS, specs=True) as app:
        yield app


async def answered(app: Client, run: buoy.Run[Any], answer: object) -> Any:
    """The run's result; its question is answered if it is still asked."""

    async def once() -> None:
        state = await until_status(app, run.id, "awaiting_input")
        (leaf,) = state.questions()
        await app.answer(run.id, answer, question_id=leaf.question_id)

    asked = asyncio.ensure_future(once())
    try:
        return await result_of(app, run)
    finally:
        asked.cancel()


async def lived(url: str, workflow: Any, answer: object) -> tuple[list[e.Event], Any]:
    """A whole life of the workflow: its log and its result."""
    async with driven(url, workflow) as app:
        run = await app.start_as("whole", workflow)
        result = await answered(app, run, answer)
        return await log_of(app, "whole"), result


async def planted(client: Client, run_id: str, log: Sequence[e.Event], claims: Status) -> None:
    """The run as a crash left it, parked, under a document that says something else."""
    run = RunId(run_id)
    events = tuple(log)
    told = msgspec.structs.replace(document(fold(run, events)), status=claims)
    await client.store.commit([Write(run, 0, events, told, Released(due_at=None, now=0.0))])


def never_again(log: Sequence[e.Event], ran: Sequence[str]) -> set[str]:
    """Leaves that the cut log has as completed, and that were executed all the same."""
    done = {event.body.leaf for event in log if isinstance(event.body, e.StepCompleted | e.ModuleCompleted)}
    return done & set(ran)


async def at_every_cut(
    place: Path, kind: str, workflow: Any, answer: object, ran: Callable[[str], list[str]], claims: Status
) -> None:
    whole, result = await lived(_url(place, kind, "whole"), workflow, answer)
    branches = 0
    for number, log in enumerate(cuts(whole), 1):
        run_id = f"cut-{number}"
        url, cut = _url(place, kind, run_id), renamed(log, "whole", run_id)
        async with buoy.connect(url) as client:
            if isinstance(workflow, SpecWorkflow):
                await client.store.define(workflow.version, workflow.stored)
            await planted(client, run_id, cut, claims)
            found = await recover_run(client, run_id)
            assert found.error is None, (number, found)
            made = len(await bodies_of(client, run_id, e.WorkflowRecovered))
            assert made <= 1
            branches += made
            again = await recover_run(client, run_id)
            assert again.needed is False, (number, again)
        async with driven(url, workflow) as app:
            run = await app.get(run_id)
            assert await answered(app, run, answer) == result, number
            questions = {each.question_id for each in await bodies_of(app, run_id, e.InteractionRequested)}
            assert len(questions) <= 1, "a question asked again keeps its id"
            assert len(await bodies_of(app, run_id, e.InteractionResponse)) == 1
        assert never_again(cut, ran(run_id)) == set(), number
    assert branches


def _url(place: Path, kind: str, name: str) -> str:
    return f"sqlite:///{place}/{name}.db" if kind == "sqlite" else f"file://{place}/{name}"


def in_time(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())


# Every cut is a store and a worker of its own.
EVERYWHERE = [pytest.param(kind, marks=() if kind == "sqlite" else pytest.mark.slow) for kind in KINDS]
LIES = sorted(ACTIVE & {Status.AWAITING_INPUT, Status.RUNNING})


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("claims", LIES)
def test_code_is_recovered_at_every_cut(tmp_path: Path, kind: str, claims: Status) -> None:
    DONE.clear()
    in_time(
        at_every_cut(tmp_path, kind, asking, True, lambda run_id: [leaf for run, leaf in DONE if run == run_id], claims)
    )


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("claims", LIES)
def test_a_spec_is_recovered_at_every_cut(tmp_path: Path, kind: str, claims: Status) -> None:
    RAN.clear()
    workflow = spec_of(SpecSource("test.yaml", SPEC), calls=None)
    in_time(
        at_every_cut(
            tmp_path, kind, workflow, "yes", lambda run_id: [leaf for run, leaf, _ in RAN if run == run_id], claims
        )
    )


def at_the_last_step(whole: Sequence[e.Event]) -> tuple[list[e.Event], LeafId]:
    """The log up to the start of the last step, as that of another run; and the step."""
    place, leaf = [(event.seq, event.body.leaf) for event in whole if isinstance(event.body, e.StepStarted)][-1]
    return renamed(whole[:place], "whole", "cut"), leaf


@pytest.mark.parametrize(("error", "status"), [("ConnectionResetError", "completed"), ("ValueError", "failed")])
def test_a_failure_that_nobody_acted_on_goes_by_its_class(tmp_path: Path, error: str, status: str) -> None:
    async def work() -> None:
        whole, _ = await lived(_url(tmp_path, "sqlite", "whole"), asking, True)
        log, leaf = at_the_last_step(whole)
        failed = e.StepFailed(leaf=leaf, error=e.ErrorInfo(type=error, message="gone"))
        log.append(msgspec.structs.replace(log[-1], seq=len(log) + 1, body=failed, nonce=None))
        url = _url(tmp_path, "sqlite", "cut")
        async with buoy.connect(url) as client:
            await planted(client, "cut", log, Status.RUNNING)
            found = await recover_run(client, "cut")
            assert found.reason is not None
            assert found.reason.startswith(f"A4: {leaf} failed")
        async with driven(url, asking) as app:
            state = await until_status(app, "cut", status)
            assert (await bodies_of(app, "cut", e.InteractionRequested))[0].question_id == "cut/ask#1/0"
            assert len(await bodies_of(app, "cut", e.InteractionRequested)) == 1
            assert state.anomalies == []

    in_time(work())


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_asks_nobody_twice(tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        DONE.clear()
        whole, result = await lived(_url(tmp_path, kind, "whole"), asking, True)
        log, _ = at_the_last_step(whole)
        url = _url(tmp_path, kind, "cut")
        async with buoy.connect(url) as client:
            await planted(client, "cut", log, Status.AWAITING_INPUT)
            found = await recover_run(client, "cut", policy=lambda document: "restart")
            assert (found.action, found.plan and found.plan.cutoff_seq) == ("restart", 0)
        async with driven(url, asking) as app:
            assert await result_of(app, await app.get("cut")) == result
            assert len(await bodies_of(app, "cut", e.InteractionRequested)) == 1
        assert sorted(leaf for run, leaf in DONE if run == "cut") == sorted(
            leaf for run, leaf in DONE if run == "whole"
        )

    in_time(work())
