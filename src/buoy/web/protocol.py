"""Protocol: one HTTP connection of `buoy serve`: uvicorn's, with time limits and a direct way to readers of streams.

Invariants: a head that does not arrive in time, and a body that still arrives long after the answer, end the
connection: a caller without a token must not hold one forever. A request with a length and chunks is refused, since a
proxy in front may see another end of its body. A chunk is written only while the response is chunked and nothing waits
before it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from buoy.web import problems
from buoy.web.problems import problem
from buoy.web.wire import CHUNKS

# From the first byte of a request, or from the connection, to the end of its headers.
HEAD_MAX_S = 30.0
# How long the rest of a body is taken, and thrown away, after its request was answered: closed at once, many clients
# would not see the answer.
LINGER_S = 5.0


class ServerConnection(H11Protocol):
    """A connection of a server."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        inner: ASGIApp = self.app
        self._late: asyncio.TimerHandle | None = None

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if _has_two_ends(scope):
                refused = problem(problems.BAD_REQUEST, "the request has a Content-Length and a Transfer-Encoding")
                refused.headers["Connection"] = "close"
                await refused(scope, receive, send)
                return
            if scope["http_version"] == "1.1" and scope["method"] == "GET":
                scope["extensions"] = {CHUNKS: self}
            await inner(scope, receive, send)

        self.app = app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_MAX_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # IDLE: the head is not complete yet.
        if self.conn.their_state is not h11.IDLE:
            self._in_time()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_MAX_S, self._give_up)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._in_time()
            self._late = self.loop.call_later(LINGER_S, self._give_up)

    def write_chunk(self, chunk: bytes) -> bool:
        """See `wire.ChunkWriter`."""
        if self.flow.write_paused or self.transport.is_closing():
            return False
        self.transport.write(chunk)
        return True

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        self.transport.close()


def _has_two_ends(scope: Scope) -> bool:
    names = {name for name, _ in scope.get("headers", ())}
    return b"content-length" in names and b"transfer-encoding" in names
