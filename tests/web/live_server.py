"""A server in a thread of this process: uvicorn on a free port of loopback, ended when the test ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable

import uvicorn

from buoy.web.app import Application
from buoy.web.auth import KnownTokens, grant_of
from buoy.web.backend import Backend
from buoy.web.protocol import ServerConnection
from buoy.web.serve import _Uvicorn
from buoy.web.store_tokens import StoreTokens
from buoy.wiring.server import ServedStore
from tests.patience import PATIENCE_S

TOKEN = "buoy_test-token"


class LiveServer:
    """`url` works until `stop`. The store is opened by the server, in its own loop."""

    def __init__(
        self, open_store: Callable[[], Awaitable[ServedStore]], *, sweeps: bool = False, young_s: float = 0.0
    ) -> None:
        tokens = KnownTokens()
        tokens.add(TOKEN, grant_of("tester", ["admin"]))
        self.tokens = tokens
        self.backend = Backend(open_store, sweeps=sweeps, young_s=young_s)
        self.application = Application(self.backend, StoreTokens(self.backend, tokens))
        app = self.application.build()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(app, http=ServerConnection, log_level="error", timeout_keep_alive=75, ws="none")
        # As `buoy serve` does: streams end as soon as the server is to stop.
        self._server = _Uvicorn(config, self.backend, lambda: None)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the server ends"
