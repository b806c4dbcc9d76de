"""A storm of requests: pauses, resumes, signals, answers and cancellations at any time, from several sides at once.

Whatever their order, every run ends, its log is sound, and no body ran twice: nothing crashed here.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log.state import fold
from buoy.engine.client.client import Client

from .harness import log_of, opened, until
from .scripted_steps import WITNESS, threaded, work

# Other storms: BUOY_SEED=1, 2, 3...
FIRST_SEED = 1000 * int(os.environ.get("BUOY_SEED", "0"))


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


@buoy.workflow
async def busy(n: int) -> list[Any]:
    """Waits for everything that a run can wait for, at the same time and one after the other."""

    async def leg(name: str) -> int:
        total = 0
        for turn in range(3):
            total += await work(f"{name}{turn}", turn)
            await buoy.sleep("2ms")
        return total

    async def person() -> Any:
        try:
            async with asyncio.timeout(0.2):
                return await buoy.ask("Well?")
        except TimeoutError:
            return "no answer"

    try:
        legs = await asyncio.gather(leg("a"), leg("b"), threaded.call("t", 1), person())
        signals = [await buoy.wait_signal("go", timeout="300ms") for _ in range(2)]
        return [*legs[:3], *signals]
    except TimeoutError:
        return ["late", await work("late", n)]
    finally:
        await work("clean", n)


@buoy.workflow
def busy_sync(n: int) -> list[Any]:
    try:
        one = [threaded(f"s{turn}", turn) for turn in range(3)]
        buoy.sleep("5ms")
        two = buoy.gather(threaded.call("x", 1), work.call("y", 2))
        return [one, two, buoy.wait_signal("go", timeout="300ms")]
    except TimeoutError:
        return ["late", threaded("late", n)]
    finally:
        threaded("clean", n)


async def disturb(client: Client, chance: random.Random, names: list[str], times: int) -> None:
    for _ in range(times):
        name = chance.choice(names)
        try:
            match chance.randint(0, 9):
                case 0 | 1:
                    await client.pause(name)
                case 2 | 3 | 4:
                    await client.resume(name)
                case 5 | 6:
                    await client.signal(name, chance.choice(["go", "go", "other"]), chance.randint(0, 9))
                case 7:
                    await client.answer(name, "yes")
                case 8 if chance.random() < 0.3:
                    await client.cancel(name, "storm")
                case _:
                    await asyncio.sleep(chance.uniform(0, 0.01))
        except buoy.UserError:
            await asyncio.sleep(0)  # not possible in this state: that is what a storm is


@pytest.mark.parametrize("apps", [1, 2])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
async def test_every_run_ends_after_a_storm_of_requests(seed: int, apps: int, url: str) -> None:
    chance = random.Random(seed)
    options = buoy.RunnerOptions(waiting_runs_max=seed % 3, driving_runs_max=50, stop_grace_s=2)
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(opened(url, busy, busy_sync, options=options)) for _ in range(apps)]
        outside = await stack.enter_async_context(buoy.connect(url))
        names = []
        for n in range(12):
            workflow = busy_sync if n % 4 == 3 else busy
            names.append((await workers[n % apps].start_as(f"run{n}", workflow, n)).id)
        sides = [*workers, outside]
        await asyncio.gather(*(disturb(side, random.Random(chance.random()), names, 60) for side in sides))

        async def all_ended() -> bool:
            left = 0
            for name in names:
                doc = (await outside.record(name)).document
                if doc.ended:
                    continue
                left += 1
                try:
                    if doc.pause is not None:
                        assert doc.pause.reason == "user", doc.pause
                        await outside.resume(name)
                except buoy.UserError:
                    continue
            return left == 0

        try:
            await until(all_ended, "all runs to end")
        except AssertionError as error:
            raise AssertionError(f"{error}: {await _left(outside, names)}") from None
        for name in names:
            log = await log_of(outside, name)
            state = fold(RunId(name), log)
            assert state.anomalies == []
            assert state.status in ("completed", "cancelled"), (name, state.error)
            assert max(WITNESS.of(name).values(), default=1) == 1, name
            assert (await outside.record(name)).holder is None
        for worker in workers:
            await until(lambda worker=worker: worker.runner.holding() == 0)


async def _left(client: Client, names: list[str]) -> dict[str, Any]:
    """The runs that did not end, with what they did last."""
    found = {}
    for name in names:
        record = await client.record(name)
        if not record.document.ended:
            last = [event.type for event in await log_of(client, name)][-8:]
            found[name] = (str(record.document.status), record.holder, record.due_at, last)
    return found
