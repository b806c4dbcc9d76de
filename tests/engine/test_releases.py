"""Releases: one that fails delays no other, and none that is older gives back a run that was claimed again."""

from __future__ import annotations

import asyncio
from typing import Any

from buoy.core.ids import RunId, RunnerId
from buoy.engine.process.release_queue import ReleaseQueue
from buoy.errors import Unavailable
from buoy.ports.records import Released
from tests.patience import turns, until

RUN, OTHER = RunId("run"), RunId("other")


class _Deaf:
    """A store that answers no release before the test lets it."""

    def __init__(self) -> None:
        self.asked: list[RunId] = []
        self.answers = False

    async def release(self, run_id: RunId, runner: RunnerId, change: Any, head_seq: int | None = None) -> bool:
        self.asked.append(run_id)
        if not self.answers:
            raise Unavailable("no answer")
        return True


async def test_a_release_that_got_no_answer_is_not_tried_again_once_the_run_is_claimed_again() -> None:
    store = _Deaf()
    queue = ReleaseQueue(store, RunnerId("r1"), lambda: None)  # type: ignore[arg-type]
    queue.start()
    queue.add(RUN, Released(due_at=1.0, now=1.0))
    queue.add(OTHER, Released(due_at=1.0, now=1.0))
    await until(lambda: store.asked.count(RUN) > 1 and store.asked.count(OTHER) > 1)
    found = await queue.forget(RUN)
    store.asked.clear()
    store.answers = True
    await until(lambda: OTHER in store.asked)
    await turns()
    await queue.close()
    assert (found, store.asked) == (True, [OTHER])


async def test_who_claims_a_run_again_waits_for_the_release_that_is_under_way() -> None:
    answered = asyncio.Event()

    class Slow(_Deaf):
        async def release(self, run_id: RunId, runner: RunnerId, change: Any, head_seq: int | None = None) -> bool:
            self.asked.append(run_id)
            await answered.wait()
            return True

    store = Slow()
    queue = ReleaseQueue(store, RunnerId("r1"), lambda: None)  # type: ignore[arg-type]
    queue.start()
    queue.add(RUN, Released(due_at=1.0, now=1.0))
    await until(lambda: bool(store.asked))
    claiming = asyncio.ensure_future(queue.forget(RUN))
    await turns()
    assert not claiming.done()
    answered.set()
    assert await claiming
    await queue.close()
    assert store.asked == [RUN]


async def test_releases_that_always_fail_delay_no_other_release() -> None:
    stuck = {RunId(f"stuck-{number}") for number in range(3)}

    class Partly(_Deaf):
        async def release(self, run_id: RunId, runner: RunnerId, change: Any, head_seq: int | None = None) -> bool:
            self.asked.append(run_id)
            if run_id in stuck:
                raise Unavailable("no answer")
            return True

    store = Partly()
    queue = ReleaseQueue(store, RunnerId("r1"), lambda: None)  # type: ignore[arg-type]
    others = [RunId(f"other-{number}") for number in range(20)]
    for each in (*sorted(stuck), *others):
        queue.add(each, Released(due_at=1.0, now=1.0))
    queue.start()
    await until(lambda: not any(each in queue for each in others))
    first_again = next(at for at, each in enumerate(store.asked) if each in stuck and store.asked.index(each) != at)
    assert set(others) <= set(store.asked[:first_again]), "all others come before a second try of one that failed"
    assert all(each in queue for each in stuck)
    await queue.close(at_once=True)
