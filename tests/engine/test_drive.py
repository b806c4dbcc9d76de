"""The driver of one run, as `buoy run` and `buoy runner` have it."""

from __future__ import annotations

from typing import Any

import msgspec

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.operations.workers.drive import Driver

from .harness import opened, plant, store_at, until_status


@buoy.workflow
async def short() -> int:
    return 7


async def test_a_paused_run_that_ends_as_soon_as_it_is_taken_is_told_as_ended(url: str) -> None:
    """The driver reads the run first; what it takes may have ended before it answers."""
    async with opened(url) as app:
        assert app.runner is not None
        async with store_at(url) as store:
            created = e.WorkflowCreated(workflow="short", input=msgspec.Raw(b"{}"), version=short.version)
            bodies: list[e.Body] = [created, e.Paused(reason="version", detail="its code is gone")]
            await plant(store, "run", [e.Event(seq, 1.0, body) for seq, body in enumerate(bodies, 1)])
        app.registry.add(short)
        driver = Driver(app, app.runner, RunId("run"), lambda text: None)
        take = driver._take_if_free

        async def take_and_see_the_end(*words: Any) -> None:
            await take(*words)
            await until_status(app, "run", "completed")
            await app.runner.journal.settled()  # type: ignore[union-attr]

        driver._take_if_free = take_and_see_the_end  # type: ignore[method-assign]
        document, _ = await driver.tend()
        assert document.status == "completed"
