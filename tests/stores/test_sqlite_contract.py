"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

from buoy.ports import Clock, Store
from buoy.stores.sqlite import SqliteStore
from buoy.testing.contracts import StoreContract


class TestSqlite(StoreContract):
    async def open(self, place: Path, clock: Clock) -> Store:
        return await SqliteStore.open(place / "runs.db", clock=clock)
