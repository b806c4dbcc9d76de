"""The watch of a batch run: later looks read only what is new, and show what a first look would show."""

from __future__ import annotations

import asyncio

from buoy.core.ids import RunId
from buoy.operations.batch.watch import JobWatch
from buoy.wiring.inspection import inspect_store
from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S


def test_a_later_look_shows_what_a_first_one_would(batch: Batch) -> None:
    steps = [
        {"id": "ok_{k}", "run": "true"},
        {"id": "bad", "needs": [], "run": "exit 3"},
        {"id": "after", "needs": ["bad"], "run": "true"},
    ]
    batch.submit({"name": "looks", "parameters": {"k": "1:3"}, "steps": steps})

    async def looks() -> None:
        async with inspect_store(batch.store) as access:
            watch = JobWatch(access, RunId("r1"))
            assert (await watch.look()).counts == {"uninitialized": 4, "blocked": 1}
            runner = await asyncio.to_thread(lambda: batch.runner().wait(PATIENCE_S))
            assert runner == 4
            later, first = await watch.look(), await JobWatch(access, RunId("r1")).look()
            assert later.counts == first.counts == {"blocked": 1, "completed": 3, "failed": 1}
            assert later.failures == first.failures
            assert later.status == first.status == "paused"
            await asyncio.to_thread(lambda: batch("reset", "r1", "bad"))
            assert await asyncio.to_thread(lambda: batch.runner().wait(PATIENCE_S)) == 4
            later, first = await watch.look(), await JobWatch(access, RunId("r1")).look()
            assert later.counts == first.counts

    asyncio.run(looks())
