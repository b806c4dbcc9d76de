"""The credentials of a bucket: no command, error, traceback, log or metric shows them, whatever the server answers."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

import buoy
from buoy.cli.main import main
from buoy.errors import Problem
from buoy.host.clock import SystemClock
from buoy.stores import open_store
from buoy.wiring.server import ServedStore
from tests.web.live_server import TOKEN, LiveServer

from .seaweed import KEY, SECRET, Seaweed

CANARIES = {
    "AWS_ACCESS_KEY_ID": "AKIACANARY",
    "AWS_SECRET_ACCESS_KEY": "canary-key",
    "AWS_SESSION_TOKEN": "canary-token",
}
COMMANDS = [
    ["status"], ["ps"], ["doctor"], ["why", "r"], ["why", "--all"], ["sweeper", "--once"],
    ["purge", "--older-than", "1d"], ["bench-store"], ["resume", "--all"], ["recoveries"], ["export", "r"],
    ["schedule", "list"],
]  # fmt: skip


class _Echo(BaseHTTPRequestHandler):
    """Answers each request with all that it got, as AWS does with a session token that it refuses."""

    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, code = self.server.answer  # type: ignore[attr-defined]
        said = "".join(f"<{name}>{value}</{name}>" for name, value in self.headers.items())
        xml = f"<Error><Code>{code}</Code><Message>no</Message>{said}</Error>"
        body = (xml if code else str(self.headers)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(
    scope="module",
    params=[
        (400, "InvalidToken"),
        (403, "SignatureDoesNotMatch"),
        (400, ""),
        (404, "NoSuchBucket"),
        (409, "X"),
        (200, ""),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1]}",
)
def echo(request: pytest.FixtureRequest) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    server.answer = request.param  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"s3://bucket/place?endpoint=http://127.0.0.1:{server.server_port}&region=x"
    server.shutdown()
    server.server_close()


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch, keys: None) -> None:
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)


def _leaks(text: str) -> list[str]:
    return [value for value in CANARIES.values() if value in text]


def test_a_server_that_repeats_what_it_got_makes_no_command_show_it(
    echo: str, canaries: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BUOY_STORE", echo)
    monkeypatch.setenv("BUOY_TRACE", str(tmp_path / "trace.jsonl"))
    with caplog.at_level(logging.DEBUG):
        for command in COMMANDS:
            for more in ((), ("--json",)):
                found = CliRunner().invoke(main, [*command, *more])
                assert found.exit_code in (2, 5), (command, found.output)
                assert isinstance(found.exception, SystemExit)
                trace = "".join(traceback.format_exception(found.exception))
                assert not _leaks(found.output + trace), (command, found.output)
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert not _leaks(caplog.text + written)


def test_a_traceback_of_a_program_that_uses_the_library_shows_none(echo: str, canaries: None) -> None:
    async def play() -> None:
        async with buoy.connect(echo) as client:
            await client.record("r")

    with pytest.raises(Problem) as caught:
        asyncio.run(play())
    error: BaseException | None = caught.value
    while error is not None:
        assert not _leaks("".join(traceback.format_exception(error)) + repr(error)), error
        error = error.__cause__ or error.__context__


def test_a_bucket_that_works_is_shown_without_its_credentials(server: Seaweed, prefix: str) -> None:
    url = server.url(prefix)
    for command in (
        ["status"],
        ["doctor"],
        ["ps", "--all"],
        ["sweeper", "--once"],
        ["bench-store", url, "--number", "4"],
    ):
        for more in ((), ("--json",)):
            found = CliRunner().invoke(main, [*command, "--store", url, *more])
            assert found.exit_code in (0, 1), found.output
            assert SECRET not in found.output and KEY not in found.output

    async def opened() -> ServedStore:
        return ServedStore(await open_store(url, SystemClock()), SystemClock())

    live = LiveServer(opened)
    try:
        for path in ("/metrics", "/healthz", "/readyz", "/api/v1/status"):
            asked = urllib.request.Request(live.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(asked) as answer:
                text = answer.read().decode()
            assert text and SECRET not in text and KEY not in text
    finally:
        live.stop()
