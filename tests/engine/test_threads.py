"""Two runners in two threads of one process: neither sees what the other does to asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import buoy
from buoy.core.log import events as e
from tests.patience import PATIENCE_S

from .harness import bodies_of, opened, result_of
from .scripted_steps import work

MANY = 60
INSIDE, OTHER_LEFT = threading.Event(), threading.Event()


@buoy.workflow
async def holds_its_thread() -> int:
    """Its code is under way while another runner's code begins and ends."""
    INSIDE.set()
    OTHER_LEFT.wait(PATIENCE_S)
    return sum([await each for each in asyncio.as_completed([work(str(n), n) for n in range(MANY)])])


@buoy.workflow
async def comes_by() -> int:
    return await work("other", 1)


def _other_runner(url: str, failed: list[BaseException]) -> None:
    async def runs() -> None:
        async with opened(url, comes_by) as app:
            assert await result_of(app, await app.start(comes_by)) == 1

    try:
        assert INSIDE.wait(PATIENCE_S)
        asyncio.run(runs())
    except BaseException as error:
        failed.append(error)
    finally:
        OTHER_LEFT.set()


async def test_the_order_of_concurrent_calls_does_not_depend_on_another_runner_of_the_process(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    other = threading.Thread(target=_other_runner, args=(f"sqlite:///{tmp_path}/other.db", failed))
    other.start()
    async with opened(f"sqlite:///{tmp_path}/one.db", holds_its_thread) as app:
        run = await app.start(holds_its_thread)
        assert await result_of(app, run) == sum(range(MANY))
        called = [bytes(body.args) for body in await bodies_of(app, run.id, e.StepStarted)]
    other.join()
    assert failed == []
    assert len(called) == MANY
    assert called == sorted(called, key=lambda args: int(args.partition(b'"value":')[2].rstrip(b"}")))


async def test_other_code_gets_the_sets_that_it_asks_asyncio_for(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/one.db", comes_by) as app:
        assert await result_of(app, await app.start(comes_by)) == 1
        assert type(vars(asyncio.tasks)["set"]([3, 1])) is set
        assert type(vars(asyncio.tasks)["set"]()) is set
