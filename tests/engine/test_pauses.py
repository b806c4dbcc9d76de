"""A pause and a resume, while an earlier commit is still being written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.core.log.codec import encode
from buoy.core.log.transitions import compensation_leaf
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.client.client import Client
from buoy.engine.run.execution import Execution
from buoy.engine.run.mailbox import Reason
from buoy.ports.records import Message

from .faults import opened_with_faults
from .harness import outcome_of, until
from .scripted_steps import WITNESS, after, work


@pytest.fixture(autouse=True)
def _forget() -> None:
    WITNESS.clear()


@buoy.step
async def undo(result: int) -> None:
    WITNESS.start()


@buoy.step(compensate=undo)
async def done() -> int:
    return 1


@buoy.step
async def fails_after(name: str, other: str) -> None:
    await WITNESS.ended_before(other)
    raise ValueError(f"{name} is wrong")


@buoy.workflow
async def goes_on() -> int:
    async def second() -> int:
        await after("second", "other arm")
        return await work("next", 5)

    return sum(await asyncio.gather(after("first", "one arm"), second()))


@buoy.workflow
async def goes_back() -> int:
    await done()
    await asyncio.gather(after("first", "one arm"), fails_after("second", "other arm"))
    return 0


def _execution(app: Client, run_id: str) -> Execution:
    assert app.runner is not None
    return app.runner.executions[RunId(run_id)]


@pytest.mark.parametrize(
    ("workflow", "leaf", "end"),
    [(goes_on, "2/work#1", ("completed", 5)), (goes_back, compensation_leaf(LeafId("done#1")), ("failed", None))],
    ids=["a step", "a compensation"],
)
async def test_nothing_starts_before_the_word_to_go_on_is_durable(
    workflow: Workflow[..., Any], leaf: str, end: tuple[str, Any], any_url: str
) -> None:
    """One commit starts a body and pauses the run; before it is durable, the run is resumed in memory only."""
    async with opened_with_faults(any_url, workflow) as (app, store):
        run = await app.start_as("run", workflow)
        execution = _execution(app, "run")
        await until(lambda: len(execution.state.open) == 2 and execution.ledger.idle, "both arms to execute")
        first = store.hold("commit")
        commits = store.calls["commit"]
        WITNESS.let_pass("run", {"one arm"})
        await until(lambda: store.calls["commit"] == commits + 1, "the end of one arm to be written")
        WITNESS.let_pass("run", {"other arm"})
        await until(lambda: len(execution.ledger.pending) == 2, "the other arm to continue")
        await app.pause("run")
        await until(lambda: execution.state.pause is not None, "the pause to be taken in")
        second = store.hold("commit")
        first.set()
        await until(lambda: store.calls["commit"] == commits + 2, "the pause to be written")
        # Sent as a client sends it that read the document earlier: by the log of now there is nothing to resume.
        await app.store.send(Message(RunId("run"), "resume", "now", encode(Reason(None), "a request")))
        await until(lambda: execution.state.pause is None, "the resume to be taken in")
        third = store.hold("commit")
        second.set()
        await until(lambda: store.calls["commit"] == commits + 3, "the resume to be written")
        for _ in range(20):  # whatever the second commit has started gets its turn
            await asyncio.sleep(0)
        assert WITNESS.of("run")[leaf] == 0
        third.set()
        status, value = await outcome_of(app, run)
        assert (status, value if status == "completed" else None) == end
        assert WITNESS.of("run")[leaf] == 1
