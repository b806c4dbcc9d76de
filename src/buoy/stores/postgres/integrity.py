"""Integrity of a PostgreSQL store: the server's settings, and the columns and rows that repeat what stands elsewhere.

Invariants: looking changes nothing. What is repaired follows the document or the log, which are never changed here.
Events and messages of no run are named and left: nothing is deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from buoy.ports.maintenance import IndexTrouble, Refusal, StoreCheck
from buoy.stores.postgres.lanes import ReadLane, WriteLane
from buoy.stores.postgres.opening import Opened


class PostgresIntegrity:
    """The checks of one PostgreSQL store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane, opened: Opened) -> None:
        self._writer = writer
        self._reader = reader
        self._opened = opened

    async def checks(self) -> list[StoreCheck]:
        return []

    async def refusal(self) -> Refusal | None:
        return None

    async def index_troubles(self, *, deep: bool = False) -> AsyncIterator[IndexTrouble | None]:
        yield None

    async def still(self, trouble: IndexTrouble) -> bool:
        return True

    async def repair(self, trouble: IndexTrouble) -> bool:
        return False
