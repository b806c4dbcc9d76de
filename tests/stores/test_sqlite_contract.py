"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

from buoy.ports.host import Clock
from buoy.ports.store import Store
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts import StoreContract, TimedStoreContract


class TestSqlite(StoreContract):
    async def open(self, place: Path, clock: Clock) -> Store:
        return await SqliteStore.open(place / "runs.db", clock=clock)


class TestSqliteWithAClock(TimedStoreContract):
    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        return await SqliteStore.open(place / "runs.db", clock=clock, own_clock=own_clock)
