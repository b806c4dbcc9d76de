"""Live streams: several runs over one connection, a run that nothing executes, slow readers, the end of a server."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from buoy.web import stream as streams
from tests.patience import PATIENCE_S, until, wait_until

from .live_server import TOKEN, LiveServer
from .served import Reader, Served, is_in, loud, waiting
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
        again = await asyncio.to_thread(Joined, served, f"/stream?runs=r1,r2&after={last}")
        while found := await asyncio.to_thread(again.take):
            if found[0]:
                seen[found[2]["run_id"]].append(found[2]["event"]["seq"])
        await asyncio.to_thread(again.close)
        for run_id, numbers in seen.items():
            _, log = await served.ask("GET", f"/runs/{run_id}/events")
            assert numbers == [each["seq"] for each in log["events"]]


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


@pytest.mark.parametrize("query", ["runs=", "runs=a,a", "runs=../x", "runs=r1&after=r9:1", "runs=r1&after=r1:x"])
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


@pytest.mark.parametrize("sweeps", [False, True])
async def test_a_stream_of_a_run_that_nothing_executes_says_so_at_once(tmp_path: Path, sweeps: bool) -> None:
    await asyncio.to_thread(killed_worker, tmp_path)
    served = Served(tmp_path)
    served.server.stop()
    served.server = LiveServer(served.opened, sweeps=sweeps)
    try:
        reader = await asyncio.to_thread(Reader, served, "/runs/left/stream")
        first = await asyncio.to_thread(reader.next)
        assert first is not None and first[1] == "health" and first[2]["executed"] is False
        recovery = first[2]["recovery"]
        assert recovery["dry_run"] is not sweeps
        if not sweeps:
            assert recovery["needed"] and recovery["findings"]
        else:
            # The stream or the sweeper of this server brings the run back, which of them is a matter of milliseconds.
            async def released() -> bool:
                return (await served.ask("GET", "/runs/left"))[1].get("runner") is None

            await until(released, "the run to be released")
        await asyncio.to_thread(reader.close)
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
