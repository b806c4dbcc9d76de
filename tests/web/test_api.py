"""The HTTP API and live streams, through a real server, on a store that a worker of this process drives."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import buoy
from buoy.host.clock import SystemClock
from buoy.server_wiring import ServedStore
from buoy.stores.sqlite.store import SqliteStore
from buoy.web.auth import grant_of
from buoy.web.routes import API, ENDPOINTS
from tests.patience import PATIENCE_S, until

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


class Served:
    """A server and a worker on one store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.server = LiveServer(self._opened)
        self.server.tokens.add(READER, grant_of("reader", ["read"]))

    async def _opened(self) -> ServedStore:
        clock = SystemClock()
        return ServedStore(await SqliteStore.open(self.path, clock=clock, own_clock=clock), clock)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[buoy.Client]:
        async with buoy.open(f"sqlite:///{self.path}", workflows=[flow]) as app:
            yield app

    async def ask(self, method: str, path: str, body: object = None, token: str = TOKEN) -> tuple[int, Any]:
        return await asyncio.to_thread(self._ask, method, path, body, token)

    def _ask(self, method: str, path: str, body: object, token: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body)
            connection.request(method, API + path, data, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    async def status_of(self, run_id: str) -> str:
        _, found = await self.ask("GET", f"/runs/{run_id}")
        return str(found["document"]["status"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.server.stop()


async def waiting(served: Served, app: buoy.Client, run_id: str = "r1") -> None:
    await app.start_as(run_id, flow, 4)
    await until(lambda: _is(served, run_id, "awaiting_input"), f"{run_id} to ask")


async def _is(served: Served, run_id: str, status: str) -> bool:
    return await served.status_of(run_id) == status


async def test_a_run_is_listed_shown_explained_answered_and_signalled(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        code, page = await served.ask("GET", "/runs?status=awaiting_input&workflow=flow")
        assert code == 200 and [each["document"]["run_id"] for each in page["runs"]] == ["r1"]
        assert (await served.ask("GET", "/counts"))[1] == {"awaiting_input": 1}
        code, why = await served.ask("GET", "/runs/r1/why")
        assert code == 200 and "Ship it?" in why["headline"] + why["now"]
        assert (await served.ask("POST", "/runs/r1/answer", {"answer": True}))[0] == 200
        assert (await served.ask("POST", "/runs/r1/signal", {"name": "go", "payload": 5}))[0] == 200
        await until(lambda: _is(served, "r1", "completed"), "the run to end")
        code, shown = await served.ask("GET", "/runs/r1")
        assert shown["result"] == 13
        code, log = await served.ask("GET", "/runs/r1/events?after=2&limit=3")
        assert code == 200 and [each["seq"] for each in log["events"]] == [3, 4, 5]


async def test_pause_resume_and_cancel_do_what_the_commands_do(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        assert (await served.ask("POST", "/runs/r1/pause", {"reason": "look"}))[0] == 200
        await until(lambda: _is(served, "r1", "paused"), "the pause")
        code, resumed = await served.ask("POST", "/runs/r1/resume", {})
        assert code == 200 and resumed["done"]
        await until(lambda: _is(served, "r1", "awaiting_input"), "the question again")
        assert (await served.ask("POST", "/runs/r1/cancel", {"reason": "enough"}))[0] == 200
        await until(lambda: _is(served, "r1", "cancelled"), "the end")
        code, told = await served.ask("POST", "/runs/r1/pause", {})
        assert (code, told["code"]) == (409, "wrong_state")


async def test_answers_that_cannot_be_taken_have_reasons_of_their_own(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        code, told = await served.ask("POST", "/runs/r1/answer", {"answer": True, "question": "r1/no-such/0"})
        assert (code, told["code"], told["reason"]) == (409, "unknown_question", "never_asked")
        _, shown = await served.ask("GET", "/runs/r1")
        question = shown["document"]["open"][0]["question_id"]
        assert (await served.ask("POST", "/runs/r1/answer", {"answer": True}))[0] == 200
        await until(lambda: _is(served, "r1", "waiting_signal"), "the answer to be read")
        code, told = await served.ask("POST", "/runs/r1/answer", {"answer": True, "question": question})
        assert (code, told["reason"]) == (409, "answered")


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "name"),
    [
        ("GET", "/runs/nobody", None, 404, "unknown_run"),
        ("GET", "/runs?limit=0", None, 422, "bad_input"),
        ("GET", "/runs?colour=red", None, 422, "bad_input"),
        ("GET", "/runs?limit=1&limit=2", None, 422, "bad_input"),
        ("POST", "/runs/r1/signal", b"{", 422, "bad_input"),
        ("POST", "/runs/r1/signal", b"[" * 5_000 + b"]" * 5_000, 422, "bad_input"),
        ("POST", "/runs/r1/signal", b'"' + b"x" * 2_000_000 + b'"', 413, "body_too_large"),
        ("GET", "/nothing", None, 404, "not_found"),
        ("DELETE", "/runs", None, 405, "method_not_allowed"),
    ],
)
async def test_a_wrong_request_has_a_code_of_its_own(
    served: Served, method: str, path: str, body: bytes | None, code: int, name: str
) -> None:
    found, told = await served.ask(method, path, body)
    assert (found, told["code"]) == (code, name)


async def test_a_token_does_what_its_scope_allows(served: Served) -> None:
    assert (await served.ask("GET", "/runs", token=READER))[0] == 200
    code, told = await served.ask("POST", "/runs/r1/cancel", {}, token=READER)
    assert (code, told["code"]) == (403, "forbidden")
    code, told = await served.ask("GET", "/runs", token="another")
    assert (code, told["code"]) == (401, "unauthenticated")


async def test_the_openapi_document_has_every_route_and_its_errors(served: Served) -> None:
    code, document = await served.ask("GET", "/openapi.json", token="")
    assert code == 200 and document["openapi"] == "3.1.0"
    for each in ENDPOINTS:
        operation = document["paths"][API + each.path][each.method.lower()]
        assert set(operation["responses"]) >= {"200", "401", "403", "500"}
        named = {parameter["name"] for parameter in operation["parameters"]}
        assert named >= set(each.query.__struct_fields__)
        assert ("requestBody" in operation) == (each.body is not None)


class Reader:
    """Reads a stream as a browser does."""

    def __init__(self, served: Served, path: str, after: int | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {TOKEN}"}
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
        self._connection.close()


async def test_a_stream_that_is_taken_up_again_misses_nothing_and_repeats_nothing(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        seen: list[int] = []
        reader = await asyncio.to_thread(Reader, served, "/runs/r1/stream")
        kind = await asyncio.to_thread(reader.next)
        assert kind is not None and kind[1] == "health" and kind[2]["status"] == "awaiting_input"
        for _ in range(3):
            found = await asyncio.to_thread(reader.next)
            assert found is not None and found[0] is not None
            seen.append(found[0])
        await asyncio.to_thread(reader.close)
        again = await asyncio.to_thread(Reader, served, "/runs/r1/stream", seen[-1])
        await served.ask("POST", "/runs/r1/answer", {"answer": True})
        await served.ask("POST", "/runs/r1/signal", {"name": "go", "payload": 1})
        while found := await asyncio.to_thread(again.next):
            if found[0] is not None:
                seen.append(found[0])
        await asyncio.to_thread(again.close)
        _, log = await served.ask("GET", "/runs/r1/events")
        assert seen == [each["seq"] for each in log["events"]]


async def test_the_stream_of_all_runs_begins_with_those_under_way_and_tells_each_that_moves(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        reader = await asyncio.to_thread(Reader, served, "/stream")
        first = await asyncio.to_thread(reader.next)
        assert first is not None and first[1] == "snapshot"
        assert [each["document"]["run_id"] for each in first[2]["runs"]] == ["r1"]
        await served.ask("POST", "/runs/r1/cancel", {})
        while found := await asyncio.to_thread(reader.next):
            if found[1] == "run" and found[2]["status"] == "cancelled":
                break
        assert found is not None
        await asyncio.to_thread(reader.close)


async def test_it_works_below_a_base_path_of_another_application(tmp_path: Path) -> None:
    inner = buoy.asgi(f"sqlite:///{tmp_path}/runs.db", token=TOKEN, sweeps=False)
    outer = Starlette(routes=[Mount("/base", inner)])
    heads = [(b"authorization", f"Bearer {TOKEN}".encode())]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": f"/base{API}/runs", "raw_path": b"", "query_string": b"",
        "headers": heads, "root_path": "", "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 1),
    }  # fmt: skip
    await outer(scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 200 and json.loads(sent[1]["body"]) == {"runs": [], "cursor": None}


def test_an_application_that_anyone_could_call_is_refused() -> None:
    with pytest.raises(buoy.BadInput, match="token="):
        buoy.asgi("sqlite:///runs.db")
