"""A fault proxy in front of an S3 server: it drops answers, delays, duplicates, throttles, and lies on request.

`plan` decides about each request. Requests are counted by kind as a bill has them. Where a lie needs another request
than the client signed, the proxy signs it again with the keys of the tests.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit

from .seaweed import Seaweed, signed

_CONDITIONS = ("if-none-match", "if-match")
_HOP = ("connection", "transfer-encoding", "keep-alive")


class Request(NamedTuple):
    """One request, as a plan sees it. `number` counts the requests of its kind, from 1."""

    kind: str
    key: str
    headers: dict[str, str]
    number: int
    query: dict[str, list[str]]

    @property
    def conditional(self) -> bool:
        return any(name in self.headers for name in _CONDITIONS)


class Act(NamedTuple):
    """What happens to a request. `status`: answered so, without the server if `instead`, else after it."""

    drop: str = ""  # "before" or "after" the server saw it
    delay_s: float = 0.0
    status: int = 0
    code: str = ""
    instead: bool = True
    unconditional: bool = False
    twice: bool = False
    bare_etags: bool = False
    body: Callable[[bytes], bytes] | None = None


PASS = Act()
Plan = Callable[[Request], Act]


class Proxy:
    """One proxy. Change `plan` at any time."""

    def __init__(self, server: Seaweed) -> None:
        self.server = server
        self.plan: Plan = lambda request: PASS
        self.counts: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        # Requests under way now, and the seconds that all of them took together.
        self.busy = self.most_busy = 0
        self.busy_s = 0.0
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._http = _Server(("127.0.0.1", 0), handler)
        self.port = int(self._http.server_address[1])

    def url(self, prefix: str) -> str:
        return self.server.url(prefix, f"http://127.0.0.1:{self.port}")

    def serve(self) -> None:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed in the middle is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: ClassVar[Proxy]
    _upstream: http.client.HTTPConnection | None = None

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _any(self) -> None:
        between, began = self.proxy, time.monotonic()
        with between.lock:
            between.busy += 1
            between.most_busy = max(between.most_busy, between.busy)
        try:
            self._one()
        finally:
            with between.lock:
                between.busy -= 1
                between.busy_s += time.monotonic() - began

    def _one(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = self._describe()
        act = self.proxy.plan(request)
        if act is not PASS:
            self.proxy.struck[request.kind] += 1
        time.sleep(act.delay_s)
        if act.drop == "before":
            return self._hang_up()
        if act.status and act.instead:
            return self._error(act)
        try:
            status, headers, answer = self._forward(body, act)
            if act.twice:
                status, headers, answer = self._forward(body, act)
        except OSError:
            return self._hang_up()
        if act.drop == "after":
            return self._hang_up()
        if act.status:
            return self._error(act)
        if act.body is not None:
            answer = act.body(answer)
        return self._answer(status, headers, answer, act)

    do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = _any

    def _describe(self) -> Request:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        key = parts.path.partition("/")[2].partition("/")[2]
        kind = self.command
        if kind == "GET" and "list-type" in query:
            kind, key = "LIST", query.get("prefix", [""])[0]
        elif kind == "POST" and "delete" in query:
            kind = "DELETE"
        elif kind == "HEAD":
            kind = "GET"
        with self.proxy.lock:
            self.proxy.counts[kind] += 1
            number = self.proxy.counts[kind]
        return Request(kind, key, {name.lower(): value for name, value in self.headers.items()}, number, query)

    def _forward(self, body: bytes, act: Act) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        etag = self.headers.get("if-match") or self.headers.get("if-none-match")
        if act.unconditional or (act.bare_etags and etag and etag != "*"):
            headers = self._signed_again(body, act, headers)
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection("127.0.0.1", self.proxy.server.port, timeout=120)
            self._upstream.connect()
            self._upstream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._upstream.request(self.command, self.path, body, headers)
            answer = self._upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._upstream.close()
            self._upstream = None
            raise OSError(str(error)) from error

    def _signed_again(self, body: bytes, act: Act, headers: dict[str, str]) -> dict[str, str]:
        parts = urlsplit(self.path)
        query = "&".join(sorted(each if "=" in each else each + "=" for each in parts.query.split("&") if each))
        made = signed(self.command, headers.get("host") or headers["Host"], parts.path, query, body)
        made["content-length"] = str(len(body))
        if not act.unconditional:
            for name in _CONDITIONS:
                value = self.headers.get(name)
                if value is not None:
                    # A server that knows only bare etags takes a quoted one for another version.
                    made[name] = '"never"' if value.startswith('"') else f'"{value}"'
        return made

    def _answer(self, status: int, headers: list[tuple[str, str]], answer: bytes, act: Act) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() in (*_HOP, "content-length"):
                continue
            self.send_header(name, value.strip('"') if act.bare_etags and name.lower() == "etag" else value)
        length = next((value for name, value in headers if name.lower() == "content-length"), "0")
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def _error(self, act: Act) -> None:
        code = act.code or {503: "SlowDown", 409: "ConditionalRequestConflict", 500: "InternalError"}.get(
            act.status, "X"
        )
        text = f"<Error><Code>{code}</Code><Message>asked for by the test</Message></Error>".encode()
        self._answer(act.status, [("Content-Type", "application/xml")], text, act)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(server: Seaweed) -> Iterator[Proxy]:
    """A running proxy; at the end it is gone."""
    running = Proxy(server)
    running.serve()
    try:
        yield running
    finally:
        running.close()
