"""Calls of the store port to one server: arguments out, results and errors back.

Invariants: an error of Buoy's own is raised again by its class. Any other answer that is not a result is `Unavailable`:
the call may or may not have been carried out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.rpc import CALLS, ERRORS, PATH, Failed, Hello, Look, Reply, Seen
from buoy.stores.http.connection import CALL_TIMEOUT_S, Connections
from buoy.stores.unreadable import Met

# The server answers a look for changes at its end; this much later at the latest it has answered.
_POLL_SLACK_S = 10.0
_OK = 200
_DENIED = (401, 403)


class Calls:
    """Makes calls of the port to one server."""

    def __init__(self, connections: Connections, met: Met, shown: str) -> None:
        self._connections = connections
        self._met = met
        self._shown = shown

    async def call(self, name: str, within_s: float = CALL_TIMEOUT_S, /, **arguments: Any) -> Any:
        """The result of that call, or the error that it raised at the server."""
        call = CALLS[name]
        body = await self.post(name, call.encode_arguments(arguments), within_s)
        try:
            reply = msgspec.json.decode(body, type=Reply)
            for broken in reply.met:
                self._met.note(broken)
            return call.decode_result(reply.result)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the answer of {self._shown} to {name} cannot be read: {error}") from error

    def _error(self, status: int, body: bytes) -> Exception:
        if status in _DENIED:
            return StoreUnusable(
                f"{self._shown} refuses this client (HTTP {status}); set BUOY_TOKEN to a token with scope `runner`"
            )
        try:
            found = msgspec.json.decode(body, type=Failed)
        except msgspec.MsgspecError:
            return Unavailable(f"{self._shown} answered with HTTP {status}, which is no answer of a Buoy server")
        return ERRORS.get(found.error, Unavailable)(found.message)

    async def post(self, name: str, body: bytes, within_s: float = CALL_TIMEOUT_S) -> bytes:
        """The body of a good answer. Any other answer is raised as the error that it tells."""
        answer = await self._connections.post(PATH + name, body, within_s)
        if answer.status != _OK:
            raise self._error(answer.status, answer.body)
        return answer.body

    async def hello(self) -> Hello:
        body = await self.post("hello", b"{}")
        try:
            return msgspec.json.decode(body, type=Hello)
        except msgspec.MsgspecError as error:
            raise StoreUnusable(f"{self._shown} is no Buoy server: {error}; check the URL") from error

    async def changes(self, cursor: int, timeout_s: float) -> int:
        """The cursor after a change, or after that time."""
        asked = msgspec.json.encode(Look(cursor, timeout_s))
        return msgspec.json.decode(await self.post("changes", asked, timeout_s + _POLL_SLACK_S), type=Seen).cursor
