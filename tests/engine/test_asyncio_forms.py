"""Every form of asyncio replays exactly: from each place where a crash may cut the log, with no body run twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.client.client import Run

from .forms import FORMS
from .harness import (
    cuts,
    ended_leaves,
    log_of,
    names_done,
    opened,
    plant,
    renamed,
    replayed,
    result_of,
    store_at,
    without_end,
)
from .scripted_steps import WITNESS


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


@pytest.mark.parametrize("name", FORMS)
async def test_a_form_gives_its_result_from_every_cut_of_its_log(name: str, url: str, tmp_path: Path) -> None:
    workflow, expected = FORMS[name]
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.start_as("original", workflow)) == expected
        log = await log_of(app, "original")
    # Before the code began, after each commit, and with nothing missing but the end itself.
    pieces = [log[:1], *cuts(log), without_end(log)]
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for number, piece in enumerate(pieces):
            run = f"copy{number}x"
            WITNESS.let_pass(run, names_done(piece))
            await plant(store, run, renamed(piece, "original", run))
    async with opened(second, workflow) as app:
        for number, piece in enumerate(pieces):
            run = f"copy{number}x"
            assert await result_of(app, Run(app, RunId(run))) == expected, f"cut after event {len(piece)}"
            again = {leaf for leaf in WITNESS.of(run) if leaf in ended_leaves(piece)}
            assert not again, f"cut after event {len(piece)}: {again} ran again"
            completed = [event.body for event in await log_of(app, run) if isinstance(event.body, e.StepCompleted)]
            assert len({body.leaf for body in completed}) == len(completed)


@pytest.mark.parametrize("name", FORMS)
async def test_the_replay_of_a_form_asks_for_nothing_new(name: str, url: str) -> None:
    workflow, _ = FORMS[name]
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("original", workflow))
        log = await log_of(app, "original")
    for piece in cuts(log):
        appended = await replayed(workflow, piece)
        assert [type(body) for body in appended] == [e.Claimed], f"cut after event {len(piece)}: {appended}"
    last = await replayed(workflow, without_end(log))
    assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted]
    assert bytes(last[-1].result) == bytes(log[-1].body.result)
