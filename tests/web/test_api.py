"""The HTTP API and live streams, through a real server, on a store that a worker of this process drives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import buoy
from buoy.web.routes import API
from tests.patience import until

from .live_server import TOKEN
from .served import READER, Reader, Served, is_in, waiting


async def test_a_run_is_listed_shown_explained_answered_and_signalled(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        code, page = await served.ask("GET", "/runs?status=awaiting_input&workflow=flow")
        assert code == 200 and [each["document"]["run_id"] for each in page["runs"]] == ["r1"]
        listed = page["runs"][0]
        assert listed["age_s"] >= listed["unchanged_s"] >= 0.0
        assert (await served.ask("GET", "/counts"))[1] == {"awaiting_input": 1}
        code, why = await served.ask("GET", "/runs/r1/why")
        assert code == 200 and "Ship it?" in why["headline"] + why["now"]
        assert (await served.ask("POST", "/runs/r1/answer", {"answer": True}))[0] == 200
        assert (await served.ask("POST", "/runs/r1/signal", {"name": "go", "payload": 5}))[0] == 200
        await until(lambda: is_in(served, "r1", "completed"), "the run to end")
        code, shown = await served.ask("GET", "/runs/r1")
        assert shown["result"] == 13
        code, log = await served.ask("GET", "/runs/r1/events?after=2&limit=3")
        assert code == 200 and [each["seq"] for each in log["events"]] == [3, 4, 5]


async def test_pause_resume_and_cancel_do_what_the_commands_do(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        assert (await served.ask("POST", "/runs/r1/pause", {"reason": "look"}))[0] == 200
        await until(lambda: is_in(served, "r1", "paused"), "the pause")
        code, resumed = await served.ask("POST", "/runs/r1/resume", {})
        assert code == 200 and resumed["done"]
        await until(lambda: is_in(served, "r1", "awaiting_input"), "the question again")
        assert (await served.ask("POST", "/runs/r1/cancel", {"reason": "enough"}))[0] == 200
        await until(lambda: is_in(served, "r1", "cancelled"), "the end")
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
        await until(lambda: is_in(served, "r1", "waiting_signal"), "the answer to be read")
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
