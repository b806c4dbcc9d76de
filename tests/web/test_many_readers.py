"""Many readers of live streams while runs move: each sees every event once, in order."""

from __future__ import annotations

import asyncio

import buoy
from buoy.core.log.document import Document
from buoy.web.routes import API
from tests.patience import until

from .live_server import TOKEN
from .served import Served, loud
from .stream_readers import StreamReader, open_reader

RUNS, READERS, STEPS = 3, 90, 20


async def test_every_reader_of_many_sees_every_event_once_in_order(served: Served) -> None:
    """The long form, with 1,000 readers and 100 writes per second for a minute, is `benchmarks/streams.py load`."""
    async with served.worker() as app:
        started = [await app.start_as(f"r{each}", loud, STEPS, 10) for each in range(RUNS)]
        readers = await opened_readers(served)
        lengths = [(await ended(run)).head_seq for run in started]
        await until(lambda: all(each.lost or len(each.seen) >= max(lengths) for each in readers), "all streams to end")
        for place, reader in enumerate(readers):
            assert reader.seen == list(range(1, lengths[place % RUNS] + 1))
        for reader in readers:
            assert reader.transport is not None
            reader.transport.close()


async def opened_readers(served: Served) -> list[StreamReader]:
    paths = [f"{API}/runs/r{place % RUNS}/stream" for place in range(READERS)]
    return list(await asyncio.gather(*(open_reader(served.server.port, path, TOKEN) for path in paths)))


async def ended(run: buoy.Run[int]) -> Document:
    await run.result()
    return await run.document()
