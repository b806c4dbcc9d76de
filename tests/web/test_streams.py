"""Live streams: several runs over one connection, a run that nothing executes, slow readers, the end of a server."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from buoy.errors import Unavailable
from buoy.host.clock import SystemClock
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.stores.sqlite.store import SqliteStore
from buoy.web import stream as streams
from buoy.web.auth import grant_of
from buoy.web.tail import Frame
from buoy.wiring.server import ServedStore
from buoy.wiring.sweeper import SweeperProcess
from tests.patience import PATIENCE_S, until, wait_until

from .live_server import TOKEN, LiveServer
from .served import READER, TOLD, Reader, Served, is_in, loud, story, waiting
from .test_serve import Place, place

__all__ = ["place"]


class Joined(Reader):
    """Reads a stream whose ids are no numbers."""

    last = ""

    def take(self) -> tuple[str, str, Any] | None:
        """The next event: its id, its name, its data; None at the end."""
        fields: dict[str, str] = {}
        while line := self._answer.readline().decode():
            if line != "\n":
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value
            elif "event" in fields:
                return fields.get("id", ""), fields["event"], json.loads(fields["data"])
            else:
                fields.clear()
        return None


async def test_several_runs_share_one_connection_and_are_taken_up_again_by_one_id(served: Served) -> None:
    async with served.worker() as app:
        for run_id in ("r1", "r2"):
            await waiting(served, app, run_id)
        seen: dict[str, list[int]] = {"r1": [], "r2": []}
        last = ""
        reader = await asyncio.to_thread(Joined, served, "/stream?runs=r1,r2")
        while len(seen["r1"]) + len(seen["r2"]) < 5:
            found = await asyncio.to_thread(reader.take)
            assert found is not None
            if found[0]:
                last = found[0]
                seen[found[2]["run_id"]].append(found[2]["event"]["seq"])
        await asyncio.to_thread(reader.close)
        for run_id in ("r1", "r2"):
            await served.ask("POST", f"/runs/{run_id}/answer", {"answer": True})
            await served.ask("POST", f"/runs/{run_id}/signal", {"name": "go", "payload": 1})
        again = await asyncio.to_thread(Joined, served, f"/stream?runs=r1,r2&lastEventId={last}")
        while found := await asyncio.to_thread(again.take):
            if found[0]:
                seen[found[2]["run_id"]].append(found[2]["event"]["seq"])
        await asyncio.to_thread(again.close)
        for run_id, numbers in seen.items():
            _, log = await served.ask("GET", f"/runs/{run_id}/events")
            assert numbers == [each["seq"] for each in log["events"]]


@pytest.mark.parametrize(
    ("query", "first"),
    [("after=2", 3), ("lastEventId=2", 3), ("after=1&lastEventId=2", 3), ("lastEventId=", 1)],
)
async def test_a_client_that_cannot_send_the_header_names_its_last_id_in_the_query(
    served: Served, query: str, first: int
) -> None:
    """A polyfill of EventSource adds `lastEventId` to the URL of its first request when it comes back."""
    async with served.worker() as app:
        await waiting(served, app)
        reader = await asyncio.to_thread(Reader, served, f"/runs/r1/stream?{query}")
        found = await asyncio.to_thread(reader.next)
        assert found is not None and found[1] == "health"
        found = await asyncio.to_thread(reader.next)
        assert found is not None and found[0] == first
        await asyncio.to_thread(reader.close)


async def test_the_header_names_the_last_id_if_the_query_has_one_too(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        reader = await asyncio.to_thread(Reader, served, "/runs/r1/stream?lastEventId=1", 3)
        await asyncio.to_thread(reader.next)
        found = await asyncio.to_thread(reader.next)
        assert found is not None and found[0] == 4
        await asyncio.to_thread(reader.close)


async def test_summaries_of_all_runs_share_the_connection_if_asked_for(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        reader = await asyncio.to_thread(Joined, served, "/stream?runs=r1&all=1")
        names = set()
        while "snapshot" not in names or "workflow_created" not in names:
            found = await asyncio.to_thread(reader.take)
            assert found is not None
            names.add(found[1])
        await asyncio.to_thread(reader.close)


@pytest.mark.parametrize("query", ["runs=", "runs=a,a", "runs=../x", "runs=r1&lastEventId=r9:1", "runs=r1&after=r1:x"])
async def test_a_wrong_list_of_runs_is_refused(served: Served, query: str) -> None:
    code, told = await served.ask("GET", f"/stream?{query}")
    assert (code, told["code"]) == (422, "bad_input")


CRASHING = """
import os, buoy

@buoy.step
async def slow() -> int:
    import asyncio
    print("begun", flush=True)
    await asyncio.sleep(3600)
    return 1

@buoy.workflow
async def flow() -> int:
    return await slow()
"""


def killed_worker(folder: Path) -> None:
    """Leaves a run whose worker died in the middle of a step."""
    (folder / "flows.py").write_text(CRASHING)
    words = [
        sys.executable,
        "-m",
        "buoy",
        "run",
        "flows.py:flow",
        "--id",
        "left",
        "--store",
        f"sqlite:///{folder}/runs.db",
    ]
    worker = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    try:
        while "begun" not in worker.stdout.readline():
            assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("words", [(), ("--log-json",)])
def test_a_recovery_is_one_line_of_the_log_of_a_server(place: Place, words: tuple[str, ...]) -> None:
    killed_worker(place.folder)
    with (place.folder / "log").open("w+") as log:
        place.serve("--no-sweep", *words, log=log)
        place.buoy("ps", "--store", place.url)
        request = urllib.request.Request(f"{place.url}/api/v1/runs/left/recover", b"{}")
        request.add_header("Authorization", f"Bearer {place.token_path.read_text().strip()}")
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        assert place.end() == 0
        log.seek(0)
        lines = log.read().splitlines()
    assert len(lines) == 1 and "Recovered run left" in lines[0]
    assert not words or json.loads(lines[0])["run_id"] == "left"


async def test_what_steps_publish_and_their_progress_are_part_of_the_stream(served: Served) -> None:
    TOLD.clear()
    async with served.worker() as app:
        await app.start_as("s1", story, ["once", "upon"])
        reader = await asyncio.to_thread(Reader, served, "/runs/s1/stream")
        said: list[str] = []
        progress: list[Any] = []
        try:
            # The values come while the step still runs; its progress comes with a heartbeat.
            while not (said and progress and progress[-1]["note"] == "upon"):
                found = await asyncio.to_thread(reader.next)
                assert found is not None
                if found[1] == "published":
                    assert found[0] is not None
                    said += [each["value"] for each in found[2]["body"]["items"]]
                elif found[1] == "progress":
                    assert found[0] is None
                    progress.append(found[2])
        finally:
            TOLD.set()
        assert said == ["once", "upon"]
        assert (progress[-1]["done"], progress[-1]["total"], progress[-1]["note"]) == (1, 2, "upon")
        while await asyncio.to_thread(reader.next):
            pass
        await asyncio.to_thread(reader.close)
        _, page = await served.ask("GET", "/runs/s1/published?channel=words")
        assert [each["value"] for each in page["values"]] == said
        assert page["ended"] and not page["full"]


class RestingSweeper(ServedStore):
    """A server whose sweeper never begins: what comes back does so by the stream alone."""

    async def sweep(self, delay_s: float) -> None:
        self.sweeper = SweeperProcess(self.store, SweepOptions(), delay_s=delay_s)
        await self.sweeper.begin()


async def resting(path: Path) -> ServedStore:
    clock = SystemClock()
    return RestingSweeper(await SqliteStore.open(path, clock=clock, own_clock=clock), clock)


@pytest.mark.parametrize(("sweeps", "token"), [(False, TOKEN), (True, TOKEN), (True, READER)])
async def test_a_stream_of_a_run_that_nothing_executes_says_so_at_once(
    tmp_path: Path, sweeps: bool, token: str
) -> None:
    """It brings the run back if the server sweeps and the caller may operate; else it only says what is wrong."""
    await asyncio.to_thread(killed_worker, tmp_path)
    served = Served(tmp_path)
    served.server.stop()
    served.server = LiveServer(lambda: resting(served.path), sweeps=sweeps)
    served.server.tokens.add(READER, grant_of("reader", ["read"]))
    recovers = sweeps and token == TOKEN
    try:
        before = (await served.ask("GET", "/runs/left"))[1]
        reader = await asyncio.to_thread(Reader, served, "/runs/left/stream", None, token)
        first = await asyncio.to_thread(reader.next)
        await asyncio.to_thread(reader.close)
        assert first is not None and first[1] == "health" and first[2]["executed"] is False
        recovery = first[2]["recovery"]
        assert recovery["needed"] and recovery["findings"]
        assert recovery["dry_run"] is not recovers
        after = (await served.ask("GET", "/runs/left"))[1]
        assert (after["document"]["head_seq"] > before["document"]["head_seq"]) is recovers
        audit = (await served.ask("GET", "/recoveries"))[1]["recoveries"]
        assert [(each["run_id"], each["finding"]) for each in audit] == [("left", "H1")] * recovers
    finally:
        served.server.stop()


async def test_a_reader_that_takes_nothing_is_dropped_and_comes_back_by_its_id(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEND_MAX_S", 0.2)
    async with served.worker() as app:
        await app.start_as("big", loud, 30, 900_000)
        await until(lambda: is_in(served, "big", "completed"), "the run to end")
        head = f"GET /api/v1/runs/big/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", served.server.port))
            slow.sendall(head.encode())
            dropped = served.server.application.metrics.dropped
            await until(lambda: bool(dropped._value.get()), "the slow reader to be dropped")
        monkeypatch.setattr(streams, "SEND_MAX_S", PATIENCE_S)
        reader = await asyncio.to_thread(Reader, served, "/runs/big/stream", 2)
        assert (await asyncio.to_thread(reader.next) or (0, ""))[1] == "health"
        assert (await asyncio.to_thread(reader.next) or (0,))[0] == 3
        await asyncio.to_thread(reader.close)


def test_a_stopped_server_ends_its_streams_and_the_next_one_continues_them(place: Place) -> None:
    place.serve()
    place.buoy("start", "flows.py:flow", "--arg", "n=3", "--id", "r1", "--store", place.url)
    token = place.token_path.read_text().strip()

    def follow(after: int) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", place.port), timeout=PATIENCE_S)
        head = f"GET /api/v1/runs/r1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        head += f"Last-Event-ID: {after}\r\n\r\n"
        found.sendall(head.encode())
        return found

    def read(stream: socket.socket, until_text: bytes) -> bytes:
        data = b""
        while until_text not in data:
            part = stream.recv(65536)
            assert part, data
            data += part
        return data

    stream = follow(0)
    assert b"id: 1\n" in read(stream, b"workflow_created")
    assert place.end(signal.SIGTERM) == 0
    read(stream, b": the server stops")
    stream.close()
    place.serve()
    wait_until(place.ready, "the server to be back")
    stream = follow(1)
    place.buoy("worker", "flows.py", "--until-idle", "--store", place.url)
    data = read(stream, b"event: workflow_completed")
    assert b"id: 1\n" not in data and b"id: 2\n" in data
    stream.close()


async def test_a_reader_of_several_runs_that_leaves_makes_no_noise(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        reader = await asyncio.to_thread(Reader, served, "/stream?runs=r1&all=true")
        assert await asyncio.to_thread(reader.next) is not None
        await asyncio.to_thread(reader.close)
        opened = await served.server.backend.opened()
        await until(lambda: opened.hub.streams == 0, "the server to see that the reader left")
    gc.collect()
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


async def test_trouble_with_one_of_several_parts_ends_the_stream(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader comes back by its last id; on a stream that stays open without a word it would wait for ever."""

    async def follow(*_: object) -> AsyncIterator[list[Frame]]:
        raise Unavailable("the log cannot be read")
        yield []

    async with served.worker() as app:
        await waiting(served, app)
        opened = await served.server.backend.opened()
        monkeypatch.setattr(opened.hub, "follow", follow)
        reader = await asyncio.to_thread(Joined, served, "/stream?runs=r1&all=true")
        with suppress(http.client.HTTPException):
            while await asyncio.to_thread(reader.take) is not None:
                pass
        await asyncio.to_thread(reader.close)
        await until(lambda: opened.hub.streams == 0, "the stream to end")
    assert "the log cannot be read" in caplog.text
