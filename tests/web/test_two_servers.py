"""Two servers on one PostgreSQL: a runner on one, a reader on the other, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import buoy
from buoy.host.clock import SystemClock
from buoy.stores import open_store
from buoy.wiring.server import ServedStore
from tests.patience import until
from tests.postgres_server import fresh_url

from .live_server import TOKEN, LiveServer
from .served import Reader, Served, flow, is_in


class Behind(Served):
    """Another server of the same store."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server


async def test_a_reader_goes_on_at_another_server_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUOY_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    url = fresh_url()

    async def opened() -> ServedStore:
        clock = SystemClock()
        return ServedStore(await open_store(url, clock), clock)

    one, two = Behind(LiveServer(opened)), Behind(LiveServer(opened))
    seen: list[int] = []

    async def read(reader: Reader, last: str | None) -> None:
        while found := await asyncio.to_thread(reader.next):
            if found[0] is not None:
                seen.append(found[0])
            if found[1] == last:
                break
        await asyncio.to_thread(reader.close)

    try:
        async with buoy.open(one.server.url, workflows=[flow]) as app:
            run = await app.start_as("r1", flow, 4)
            await read(await asyncio.to_thread(Reader, two, "/runs/r1/stream"), "interaction_requested")
            assert (await two.ask("POST", "/runs/r1/answer", {"answer": True}))[0] == 200
            again = await asyncio.to_thread(Reader, one, "/runs/r1/stream", seen[-1])
            await until(lambda: is_in(two, "r1", "waiting_signal"), "the answer to reach the run")
            assert (await two.ask("POST", "/runs/r1/signal", {"name": "go", "payload": 1}))[0] == 200
            await read(again, None)
            assert await run.result() == 9
            _, log = await two.ask("GET", "/runs/r1/events")
            assert seen == [each["seq"] for each in log["events"]]
    finally:
        one.server.stop()
        two.server.stop()
