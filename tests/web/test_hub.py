"""The hub: a run whose log cannot be read ends no stream of another run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.host.clock import SystemClock
from buoy.web.hub import Frame, Hub
from tests.patience import PATIENCE_S


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
