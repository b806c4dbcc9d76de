"""Server wiring: the store behind a server, with a client for each caller and a sweeper of its own.

Invariants: a server's clock is the clock of its store, so that remote runners need not agree on the time. A store that
has a clock keeps its own.
"""

from __future__ import annotations

from pathlib import Path

from buoy.config import (
    buoy_version,
    configured_env,
    configured_stack,
    configured_store,
    is_server_url,
    store_path,
)
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.services.journal import Journal
from buoy.errors import BadInput
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.store import Store
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.stores import open_store
from buoy.wiring.inspection import liveness_of
from buoy.wiring.store_tracing import trace_of_environment, traced
from buoy.wiring.sweeper import SweeperProcess


class ServedStore:
    """A store as a server has it open."""

    def __init__(self, store: Store, clock: SystemClock) -> None:
        self.store = store
        self.clock = clock
        self.version = buoy_version()
        self._ids = SystemIds()
        self._liveness = liveness_of(store)
        self.journal = Journal(store)
        self.sweeper: SweeperProcess | None = None

    def client(self, actor: str, *, stack: str | None = None, env: str | None = None) -> Client:
        """A client that acts for a caller of that name."""
        return Client(
            self.store,
            Registry(),
            clock=self.clock,
            ids=self._ids,
            liveness=self._liveness,
            actor=actor,
            stack=stack or configured_stack(),
            env=env or configured_env(),
        )

    async def sweep(self, delay_s: float) -> None:
        """Sweeps from now on; the first whole sweep comes after that time."""
        options = SweepOptions(scope=Scope(configured_stack(), configured_env()))
        self.sweeper = SweeperProcess(self.store, options, delay_s=delay_s)
        await self.sweeper.begin()
        self.sweeper.sweeper.start()

    async def close(self) -> None:
        if self.sweeper is not None:
            await self.sweeper.end()
        await self.store.close()


def server_clock() -> SystemClock:
    """The clock of this machine."""
    return SystemClock()


async def open_served(url: str | None) -> ServedStore:
    """The store of that URL, or the configured one."""
    clock = SystemClock()
    place = configured_store() if url is None else url
    if is_server_url(place):
        raise BadInput(f"{place} is a server; name the store behind it, or put a proxy in front of it")
    listener = trace_of_environment()
    return ServedStore(traced(await _with_clock(place, clock), clock, listener), clock)


async def _with_clock(url: str, clock: SystemClock) -> Store:
    """A file and a folder get the clock of this server as their own."""
    path = store_path(url)
    if path is None:
        return await open_store(url, clock)
    return await (_folder(path, clock) if url.startswith("file:") else _sqlite(path, clock))


async def _folder(path: Path, clock: SystemClock) -> Store:
    from buoy.stores.objects.folder_store import FolderStore

    return await FolderStore.open(path, clock=clock, own_clock=clock)


async def _sqlite(path: Path, clock: SystemClock) -> Store:
    from buoy.stores.sqlite.store import SqliteStore

    return await SqliteStore.open(path, clock=clock, own_clock=clock)
