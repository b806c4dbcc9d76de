"""Connections to a server: HTTP/1.1 by the standard library, a few at a time, kept open between calls.

Invariants: a request is sent at most once. If no whole answer comes, the outcome is unclear, and `Unavailable` says so.
A connection that has been idle for long is not used again, since the server may be closing it. The token is never part
of an error or a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from buoy.core.urls import shown_url
from buoy.errors import BadInput, NotWritten, Unavailable
from buoy.ports.host import Clock

# One call each: a group of commits, reads beside it, the look for changes.
CONNECTIONS_MAX = 8
# Below the time after which the server closes a connection that is idle.
IDLE_MAX_S = 20.0
CALL_TIMEOUT_S = 30.0
REPLY_BYTES_MAX = 256 * 1024 * 1024

_BROKEN = (OSError, http.client.HTTPException)


class Address(NamedTuple):
    """Where a server listens. `path` is the base path; `socket` that of a unix socket."""

    host: str
    port: int
    path: str
    tls: bool = False
    socket: str = ""


class Answer(NamedTuple):
    status: int
    body: bytes


def parse_address(url: str) -> Address:
    """`http://host:port/base`, `https://...` or `http+unix:///path/of/socket`."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        if not parts.path.strip("/"):
            raise BadInput(f"store {shown_url(url)!r} names no socket; write 'http+unix:///run/buoy.sock'")
        return Address("localhost", 0, "", socket=unquote(parts.path))
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"store {shown_url(url)!r}: {error}; write 'http://host:port'") from error
    if not host:
        raise BadInput(f"store {shown_url(url)!r} names no host; write 'http://host:port'")
    tls = parts.scheme == "https"
    return Address(host, port or (443 if tls else 80), parts.path.rstrip("/"), tls)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Connections:
    """Sends requests to one server from threads of its own. One slow answer holds up no other call."""

    def __init__(self, address: Address, token: str | None, clock: Clock, shown: str) -> None:
        self._address = address
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._clock = clock
        self._shown = shown
        self._context = ssl.create_default_context() if address.tls else None
        self._pool = ThreadPoolExecutor(CONNECTIONS_MAX, thread_name_prefix="buoy-http")
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._closed = False

    async def post(self, path: str, body: bytes, timeout_s: float = CALL_TIMEOUT_S) -> Answer:
        """One request and its answer. Raises `Unavailable` if no whole answer came."""
        if self._closed:
            raise Unavailable(f"the connection to {self._shown} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._exchange, path, body, timeout_s)

    async def close(self) -> None:
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection, _ in idle:
            connection.close()
        for connection in busy:
            _hang_up(connection)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _exchange(self, path: str, body: bytes, timeout_s: float) -> Answer:
        connection = self._take(timeout_s)
        with self._lock:
            self._busy.add(connection)
        try:
            return self._answer(connection, path, body)
        finally:
            with self._lock:
                self._busy.discard(connection)

    def _answer(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> Answer:
        try:
            connection.request("POST", self._address.path + path, body, self._headers)
            response = connection.getresponse()
            data = response.read(REPLY_BYTES_MAX + 1)
        except _BROKEN as error:
            connection.close()
            raise Unavailable(f"no answer from {self._shown}: {error or type(error).__name__}") from error
        if len(data) > REPLY_BYTES_MAX:
            connection.close()
            raise Unavailable(f"the answer of {self._shown} has more than {REPLY_BYTES_MAX:,} bytes")
        if response.will_close:
            connection.close()
        else:
            self._give_back(connection)
        return Answer(response.status, data)

    def _take(self, timeout_s: float) -> http.client.HTTPConnection:
        now = self._clock.monotonic()
        with self._lock:
            while self._idle:
                connection, since = self._idle.pop()
                if now - since <= IDLE_MAX_S and connection.sock is not None:
                    connection.sock.settimeout(timeout_s)
                    return connection
                connection.close()
        return self._connect(timeout_s)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append((connection, self._clock.monotonic()))
                return
        connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port, _, tls, path = self._address
        if path:
            connection: http.client.HTTPConnection = _UnixConnection(path, timeout_s)
        elif tls:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        try:
            connection.connect()
            if not path:
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            connection.close()
            raise NotWritten(f"{self._shown} cannot be reached: {error}; is `buoy serve` running there?") from error
        return connection


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Wakes the thread that waits for an answer there."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # it is closed already
            connection.sock.shutdown(socket.SHUT_RDWR)
