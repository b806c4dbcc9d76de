"""Backend: the store behind a server, opened once, with what the handlers share.

Invariants: it starts with the first request or with the app's lifespan, as an app that is mounted into another one gets
no lifespan. A second start has no effect. `close` leaves nothing running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from buoy.core.limits import SUSPECT_AFTER_S
from buoy.web.hub import Hub
from buoy.web.store_api import StoreApi
from buoy.wiring.server import ServedStore

# Longer than the time after which silence is suspect: every runner has had the time to beat again.
SWEEP_DELAY_S = 150.0


class OpenedServer:
    """What a server has open."""

    def __init__(self, served: ServedStore, young_s: float) -> None:
        self.served = served
        self.store = served.store
        self.clock = served.clock
        self.api = StoreApi(served.store, served.journal, served.clock, served.version, young_s)
        self.hub = Hub(served.store, served.clock)
        self.api.committed = self.hub.nudge


class Backend:
    """Opens the store of a server when it is first needed."""

    def __init__(
        self, open_store: Callable[[], Awaitable[ServedStore]], *,
        sweeps: bool = True, sweep_delay_s: float = SWEEP_DELAY_S, young_s: float = SUSPECT_AFTER_S,
    ) -> None:  # fmt: skip
        self._open_store = open_store
        self._sweeps = sweeps
        self._young_s = young_s
        self._sweep_delay_s = sweep_delay_s
        self._lock = asyncio.Lock()
        self._opened: OpenedServer | None = None

    async def opened(self) -> OpenedServer:
        """Raises what opening the store raises; the next request tries again."""
        if self._opened is None:
            async with self._lock:
                if self._opened is None:
                    self._opened = await self._open()
        return self._opened

    async def _open(self) -> OpenedServer:
        served = await self._open_store()
        try:
            if self._sweeps:
                await served.sweep(self._sweep_delay_s)
        except BaseException:
            await served.close()
            raise
        found = OpenedServer(served, self._young_s)
        found.api.start()
        return found

    async def end_streams(self) -> None:
        """Before a stop: a server waits for its requests, and streams and long polls do not end by themselves."""
        if self._opened is not None:
            self._opened.api.hang_up()
            await self._opened.hub.close()

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.hub.close()
            await opened.api.close()
            await opened.served.close()
