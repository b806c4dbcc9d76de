"""The PostgreSQL store keeps the contract of stores with a clock of their own."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from buoy.ports.host import Clock
from buoy.ports.store import Store
from buoy.testing.contracts import TimedStoreContract
from tests.postgres_server import open_timed, query, timed_url

TABLES = "runs, log, inbox, tasks, runners, tombstones, schedules, definitions, tokens"


class _Postgres(TimedStoreContract):
    """One schema for all tests of a class: making it takes longer than most of them."""

    version: int
    _places: ClassVar[dict[int, tuple[str, Path]]] = {}

    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        url, last = self._places.get(self.version) or (timed_url(self.version), place)
        self._places[self.version] = url, place
        if last != place:
            query(url, "TRUNCATE " + ", ".join("{schema}." + each for each in TABLES.split(", ")))
        return await open_timed(url, clock, own_clock)


class TestPostgres16(_Postgres):
    version = 16


class TestPostgres18(_Postgres):
    version = 18
