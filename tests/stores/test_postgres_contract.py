"""The PostgreSQL store keeps the contract of stores with a clock of their own."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from buoy.ports.host import Clock
from buoy.ports.store import Store
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.contracts import TimedStoreContract
from buoy.testing.postgres_clock import timed_session, use_test_clock
from tests.postgres_server import fresh_url


class _Postgres(TimedStoreContract):
    version: int
    _urls: ClassVar[dict[Path, str]] = {}

    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        url = self._urls.get(place)
        if url is None:
            url = self._urls[place] = fresh_url(self.version)
            use_test_clock(url)
        return await PostgresStore.open(url, clock=clock, session=timed_session(own_clock))


class TestPostgres16(_Postgres):
    version = 16


class TestPostgres18(_Postgres):
    version = 18
