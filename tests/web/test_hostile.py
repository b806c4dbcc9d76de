"""Hostile input: what a server must refuse without harm, and must answer after it."""

from __future__ import annotations

import asyncio
import json
import re
import socket

import pytest

from buoy.web import protocol
from tests.patience import PATIENCE_S

from .live_server import TOKEN
from .served import Served

AUTH = f"Authorization: Bearer {TOKEN}\r\n"
SIGNAL = "POST /api/v1/runs/r1/signal HTTP/1.1\r\nHost: x\r\n" + AUTH


def exchange(served: Served, data: bytes) -> bytes:
    """What the server answers to raw bytes, until it closes or has said enough."""
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_S) as raw:
        raw.sendall(data)
        return raw.recv(65536)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        # Two lengths, or a length and chunks: where the body ends must not be a matter of opinion.
        (SIGNAL + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", {400}),
        (SIGNAL + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", {400}),
        (SIGNAL + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", {400, 422, 499}),
        (SIGNAL + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", {400, 422, 501}),
        (SIGNAL + "Content-Length: -1\r\n\r\n", {400}),
        (SIGNAL + "X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", {400, 422}),
        ("GET /api/v1/runs HTTP/9.9\r\nHost: x\r\n\r\n", {400, 401, 505}),
        ("GARBAGE\r\n\r\n", {400}),
        ("GET /api/v1/runs/..%2f..%2fetc/why HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {404, 422}),
        ("GET /api/v1/runs/%00/why HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {404, 422}),
        ("GET /api/v1/runs/" + "a" * 3000 + " HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {404, 414, 422}),
        ("GET /api/v1//runs HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {404}),
        ("GET /store/v1/../../api/v1/runs HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {404, 405}),
        ("POST /store/v1/__class__ HTTP/1.1\r\nHost: x\r\n" + AUTH + "Content-Length: 2\r\n\r\n{}", {422}),
        ("POST /store/v1/close HTTP/1.1\r\nHost: x\r\n" + AUTH + "Content-Length: 2\r\n\r\n{}", {422}),
        ("POST /store/v1/tokens.tokens HTTP/1.1\r\nHost: x\r\n" + AUTH + "Content-Length: 2\r\n\r\n{}", {422}),
        ("GET /api/v1/runs/r1/stream HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1e9\r\n" + AUTH + "\r\n", {404, 422}),
        (SIGNAL + "Content-Length: 999999999\r\n\r\n{", {413}),
        ("GET /api/v1/runs HTTP/1.1\r\nHost: x\r\n" + AUTH + "Authorization: Bearer other\r\n\r\n", {401}),
        ("GET /api/v1/runs HTTP/1.1\r\nHost: x\r\n" + AUTH + AUTH + "\r\n", {401}),
        ("GET /api/v1/runs?limit=1&limit=2 HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {422}),
        ("GET /api/v1/runs/%c0%ae%c0%ae/why HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {422}),
        ("GET /api/v1/runs/%ed%a0%80/why HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {422}),
        ("GET /api/v1/runs/%2e%2e/why HTTP/1.1\r\nHost: x\r\n" + AUTH + "\r\n", {422}),
        ("GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n\r\n", {401}),
        ("GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + "x" * 5000 + "\r\n\r\n", {401}),
        ("GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", {401, 400}),
    ],
)
async def test_a_hostile_request_is_refused_and_the_server_answers_the_next(
    served: Served, text: str, statuses: set[int]
) -> None:
    answer = exchange(served, text.encode("latin-1"))
    assert status_of(answer) in statuses, answer
    assert (await served.ask("GET", "/counts"))[0] == 200


async def test_what_follows_a_body_with_two_ends_is_not_taken_for_a_request(served: Served) -> None:
    """A proxy in front that goes by the length would take the second request for a part of the first."""
    second = f"GET /api/v1/counts HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n"
    text = SIGNAL + f"Content-Length: {len(second) + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second
    assert await asyncio.to_thread(all_of, served, text.encode()) == [b"400"]


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("", []),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n", []),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /he", [b"200"]),
        ("POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{", [b"401"]),
    ],
)
async def test_a_caller_that_does_not_finish_its_request_cannot_hold_a_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch, text: str, statuses: list[bytes]
) -> None:
    monkeypatch.setattr(protocol, "HEAD_MAX_S", 0.3)
    monkeypatch.setattr(protocol, "LINGER_S", 0.3)
    assert await asyncio.to_thread(all_of, served, text.encode()) == statuses


async def test_a_connection_is_used_again_after_a_body_that_was_not_wanted(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_S) as raw:
        raw.sendall(b"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        answers = raw.makefile("rb")
        assert answers.readline().startswith(b"HTTP/1.1 401 ")
        raw.sendall(b" " * 8 + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        lines = (line for line in answers if b"HTTP/1.1 " in line)
        assert next(lines).endswith(b"HTTP/1.1 200 OK\r\n")


def all_of(served: Served, data: bytes) -> list[bytes]:
    """The statuses of all answers until the server closes the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_S) as raw:
        raw.sendall(data)
        try:
            while part := raw.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
    return re.findall(rb"HTTP/1.1 (\d+)", answer)


async def test_a_body_in_chunks_is_cut_off_at_its_limit_although_it_names_no_length(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_S) as raw:
        raw.sendall((SIGNAL + "Transfer-Encoding: chunked\r\n\r\n").encode())
        part = b"x" * 65536
        try:
            for _ in range(40):
                raw.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        except (BrokenPipeError, ConnectionResetError):
            return  # it has closed the connection, as it may
        assert status_of(raw.recv(65536)) == 413


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b'{"name": "\\ud800"}',
        b'{"name": NaN}',
        b'{"name": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"null",
    ],
)
async def test_odd_json_is_refused_with_a_problem(served: Served, body: bytes) -> None:
    code, told = await served.ask("POST", "/runs/r1/signal", body)
    assert code in (404, 422) and told["code"] in ("bad_input", "unknown_run")
    assert "Traceback" not in json.dumps(told)
