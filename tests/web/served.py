"""A server and a worker on one store, for the tests of the API and of live streams."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import buoy
from buoy.host.clock import SystemClock
from buoy.stores.sqlite.store import SqliteStore
from buoy.web.auth import grant_of
from buoy.web.routes import API
from buoy.wiring.server import ServedStore
from tests.patience import PATIENCE_S, until

from .conformance import check_answer
from .live_server import TOKEN, LiveServer

READER = "buoy_reader-token"


@buoy.step
async def double(n: int) -> int:
    return 2 * n


@buoy.workflow
async def flow(n: int) -> int:
    first = await double(n)
    if not await buoy.ask("Ship it?", kind="confirm"):
        raise buoy.Cancelled("declined")
    return first + int(await buoy.wait_signal("go"))


@buoy.step
async def shout(n: int) -> str:
    return "x" * n


@buoy.workflow
async def loud(times: int, n: int) -> int:
    return sum([len(await shout(n)) for _ in range(times)])


@buoy.step
async def tell(words: list[str]) -> int:
    for place, word in enumerate(words):
        buoy.publish(word, channel="words")
        buoy.progress(place, len(words), word)
    await until(TOLD.is_set, "the test to let the step end")
    return len(words)


@buoy.workflow
async def story(words: list[str]) -> int:
    return await tell(words)


TOLD = threading.Event()


class Served:
    """A server and a worker on one store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.server = LiveServer(self.opened)
        self.server.tokens.add(READER, grant_of("reader", ["read"]))

    async def opened(self) -> ServedStore:
        clock = SystemClock()
        return ServedStore(await SqliteStore.open(self.path, clock=clock, own_clock=clock), clock)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[buoy.Client]:
        async with buoy.open(f"sqlite:///{self.path}", workflows=[flow, loud, story]) as app:
            yield app

    async def ask(self, method: str, path: str, body: object = None, token: str = TOKEN) -> tuple[int, Any]:
        return await asyncio.to_thread(self._ask, method, path, body, token)

    def _ask(self, method: str, path: str, body: object, token: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body)
            connection.request(method, API + path, data, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            found = json.loads(answer.read() or b"null")
            check_answer(method, path, answer.status, found)
            return answer.status, found
        finally:
            connection.close()

    async def status_of(self, run_id: str) -> str:
        _, found = await self.ask("GET", f"/runs/{run_id}")
        return str(found["document"]["status"])


async def waiting(served: Served, app: buoy.Client, run_id: str = "r1") -> None:
    await app.start_as(run_id, flow, 4)
    await until(lambda: is_in(served, run_id, "awaiting_input"), f"{run_id} to ask")


async def is_in(served: Served, run_id: str, status: str) -> bool:
    return await served.status_of(run_id) == status


class Reader:
    """Reads a stream as a browser does."""

    def __init__(self, served: Served, path: str, after: int | None = None, token: str = TOKEN) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {token}"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        self._connection.request("GET", API + path, headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def next(self) -> tuple[int | None, str, Any] | None:
        """The next event: its id, its name, its data; None at the end."""
        fields: dict[str, str] = {}
        while line := self._answer.readline().decode():
            if line != "\n":
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value
            elif "event" in fields:
                number = int(fields["id"]) if "id" in fields else None
                return number, fields["event"], json.loads(fields["data"])
            else:
                fields.clear()
        return None

    def close(self) -> None:
        self._answer.close()
        self._connection.close()
