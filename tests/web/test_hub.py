"""The hub: a run whose log cannot be read ends no stream of another run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.host.clock import SystemClock
from buoy.web.hub import Hub
from buoy.web.tail import Frame
from tests.patience import PATIENCE_S, until


@buoy.workflow
async def waits() -> str:
    return str(await buoy.wait_signal("go"))


async def test_a_run_that_cannot_be_read_keeps_no_other_from_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with buoy.connect(url) as client, buoy.connect(url) as other:
        for run_id in ("a-broken", "b-sound"):
            await client.start_as(run_id, waits)
        hub = Hub(client.store, SystemClock())
        met: list[str] = []
        broken = False

        def plant(name: str) -> None:
            real = getattr(client.store, name)

            async def read(run_id: RunId, *given: Any) -> Any:
                if broken and run_id == "a-broken":
                    met.append(name)
                    raise LookupError("planted by this test")
                return await real(run_id, *given)

            monkeypatch.setattr(client.store, name, read)

        plant("events")
        plant("run")
        watched = [hub.follow(RunId(run_id), 0) for run_id in ("a-broken", "b-sound")]
        for each in watched:
            assert [frame.name for frame in await anext(each)] == ["workflow_created"]
        summaries = hub.summaries()
        first_news = asyncio.ensure_future(news_of(summaries))
        broken = True
        for run_id in ("a-broken", "b-sound"):
            await other.pause(run_id)
        async with asyncio.timeout(PATIENCE_S):
            assert "paused" in [frame.name for frame in await frames_of(watched[1])]
            assert await first_news == "b-sound"
        assert set(met) == {"events", "run"}
        for stream in (*watched, summaries):
            await stream.aclose()  # type: ignore[attr-defined]
        await hub.close()


class Connection:
    """A reader that is written to directly, and is slow now and then."""

    def __init__(self, slow_every: int) -> None:
        self.seen: list[int] = []
        self.by_itself = 0
        self._calls = 0
        self._slow_every = slow_every

    def take(self, frames: list[Frame]) -> bool:
        self._calls += 1
        if not self._calls % self._slow_every:
            return False
        self.seen += [frame.seq for frame in frames]
        return True


@pytest.mark.parametrize("slow_every", [1, 2, 3, 10_000])
async def test_readers_that_are_written_to_directly_miss_nothing_and_get_nothing_twice(
    tmp_path: Path, slow_every: int
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with buoy.connect(url) as client, buoy.connect(url) as other:
        await client.start_as("r", waits)
        hub = Hub(client.store, SystemClock())
        readers = [Connection(slow_every) for _ in range(3)]

        async def follow(reader: Connection) -> None:
            async for frames in hub.follow(RunId("r"), 0, reader.take):
                reader.seen += [frame.seq for frame in frames if frame.seq]
                reader.by_itself += 1

        async def all_is_seen() -> bool:
            log = [event.seq for event in await client.store.events(RunId("r"), 0, 500)]
            return (await client.record("r")).document.ended and [each.seen for each in readers] == [log] * 3

        following = [asyncio.create_task(follow(each)) for each in readers]
        for _ in range(4):
            await other.pause("r")
            await other.resume("r")
        await other.cancel("r")
        async with buoy.open(url, workflows=[waits]):
            await until(all_is_seen, "the readers to see every event of the run, once")
        if slow_every == 10_000:
            assert all(each.by_itself == 1 for each in readers), "only what was there at first is taken by the task"
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await hub.close()


async def frames_of(stream: Any) -> list[Frame]:
    """The next events of a run; an empty group only says that the stream stands."""
    async for frames in stream:
        if frames:
            return list(frames)
    raise AssertionError("the stream ended")


async def news_of(stream: Any) -> str:
    """The first run whose state came."""
    async for records in stream:
        if records:
            return str(records[0].document.run_id)
    raise AssertionError("the stream ended")
