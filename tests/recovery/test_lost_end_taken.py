"""A worker that takes a run whose log lost its end records the loss and continues, instead of trying for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.read_log import read_log
from tests.patience import PATIENCE_S, until

from .losses import lose

RUN = RunId("run-1")


@buoy.step
async def part(name: str) -> str:
    return name


@buoy.workflow
async def parts() -> list[str]:
    found = [await part("a"), await part("b")]
    await buoy.wait_signal("go")
    return [*found, await part("c")]


@pytest.mark.parametrize("form", ["sqlite:///{}/runs.db", "file://{}/runs"])
def test_the_worker_that_takes_it_writes_the_loss_down_and_goes_on(tmp_path: Path, form: str) -> None:
    async def play() -> None:
        url = form.format(tmp_path)
        async with buoy.open(url, workflows=[parts]) as app:
            await app.start_as(RUN, parts)

            async def waits() -> bool:
                return any(isinstance(event.body, e.SignalWaited) for event in await read_log(app.store, RUN))

            await until(waits, "the wait for the signal")
        async with buoy.connect(url) as client:
            log = await read_log(client.store, RUN)
            kept = next(event.seq for event in log if isinstance(event.body, e.StepCompleted))
            for first_seq in reversed([event.seq for event in log if event.nonce and event.seq > kept]):
                await lose(client.store, RUN, first_seq=first_seq)
        async with buoy.open(url, workflows=[parts]) as app:
            await app.signal(RUN, "go")
            assert await (await app.get(RUN)).result() == ["a", "b", "c"]
            log = await read_log(app.store, RUN)
        (audit,) = [event.body for event in log if isinstance(event.body, e.WorkflowRecovered)]
        assert "may have been lost" in audit.reason
        assert sum(isinstance(event.body, e.Claimed) for event in log) <= 4

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
