"""Inspection: a store opened to be looked at, without the engine. Loads a tenth of what a client does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from buoy.host.clock import SystemClock
from buoy.host.lock_files import LockFiles
from buoy.host.processes import Processes
from buoy.ports.host import Clock, Liveness
from buoy.ports.store import Store
from buoy.stores import open_store
from buoy.wiring.store_tracing import trace_of_environment, traced


class Inspector(NamedTuple):
    """The ports that a look at runs needs."""

    store: Store
    clock: Clock
    liveness: Liveness


@asynccontextmanager
async def inspect_store(url: str) -> AsyncIterator[Inspector]:
    """That store; at the end it is closed."""
    clock = SystemClock()
    store = await open_configured(url, clock)
    try:
        yield Inspector(store, clock, liveness_of(store))
    finally:
        await store.close()


async def open_configured(url: str, clock: Clock) -> Store:
    """The store that a URL names, traced if the environment asks for it."""
    listener = trace_of_environment()
    return traced(await open_store(url, clock), clock, listener)


def liveness_of(store: Store) -> Liveness:
    """How death is proven on this store."""
    return Processes() if store.lock_dir is None else LockFiles(store.lock_dir)
