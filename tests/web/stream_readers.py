"""Very many readers of live streams in one process: a protocol each, no task, and only numbers and times are parsed."""

from __future__ import annotations

import asyncio
import re
import time

# What a reader takes of an event: its id, and its time, which stands near the beginning of its data.
_EVENT = re.compile(rb'id: (\d+)\nevent: \w+\ndata: {"seq":\d+,"at":([\d.e+-]+)')


class StreamReader(asyncio.Protocol):
    """One reader. `seen`: the numbers of its events in order; `delays_s`: from the time of an event to its arrival."""

    def __init__(self, path: str, token: str) -> None:
        self._request = (f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n").encode()
        self._rest = b""
        self.seen: list[int] = []
        self.delays_s: list[float] = []
        self.opened = False
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self.opened = True
        whole, mark, self._rest = (self._rest + data).rpartition(b"\n\n")
        for number, at in _EVENT.findall(whole + mark):
            self.seen.append(int(number))
            self.delays_s.append(now - float(at))


async def open_reader(port: int, path: str, token: str) -> StreamReader:
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: StreamReader(path, token), "127.0.0.1", port)
    return reader
