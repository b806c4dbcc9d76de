"""The contract of stores, through a real server, on SQLite, on a folder and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from buoy.errors import NotAllowedHere
from buoy.host.clock import SystemClock
from buoy.ports.host import Clock
from buoy.ports.rpc import CALLS
from buoy.ports.store import Store
from buoy.stores.http.store import HttpStore
from buoy.stores.objects.folder_store import FolderStore
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts import StoreHarness, TimedStoreContract, with_harness
from buoy.testing.contracts.tokens import token
from buoy.wiring.server import ServedStore
from tests.postgres_server import open_timed, query, timed_url
from tests.stores.test_postgres_contract import TABLES
from tests.web.live_server import TOKEN, LiveServer

SERVERS: dict[Path, LiveServer] = {}


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    while SERVERS:
        SERVERS.popitem()[1].stop()


class _HttpContract(TimedStoreContract):
    async def behind(self, place: Path, own_clock: Clock) -> Store:
        raise NotImplementedError

    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        async def opened() -> ServedStore:
            return ServedStore(await self.behind(place, own_clock), SystemClock())

        server = SERVERS.get(place) or SERVERS.setdefault(place, LiveServer(opened))
        return await HttpStore.open(server.url, TOKEN, clock=clock)

    # A server does not pass its tokens on.
    test_tokens_are_read_back_the_same_by_every_process = None  # type: ignore[assignment]
    test_a_late_note_of_use_does_not_undo_a_revocation = None  # type: ignore[assignment]
    test_of_many_who_change_a_token_one_wins = None  # type: ignore[assignment]

    @with_harness
    async def test_tokens_cannot_be_read_or_made_through_a_server(self, harness: StoreHarness) -> None:
        store = await harness.open()
        with pytest.raises(NotAllowedHere, match="through a server"):
            await store.tokens.tokens()
        with pytest.raises(NotAllowedHere, match="through a server"):
            await store.tokens.save_token(token())
        assert not any("token" in name for name in CALLS)


class TestSqliteBehindAServer(_HttpContract):
    async def behind(self, place: Path, own_clock: Clock) -> Store:
        return await SqliteStore.open(place / "runs.db", clock=own_clock, own_clock=own_clock)


class TestFolderBehindAServer(_HttpContract):
    async def behind(self, place: Path, own_clock: Clock) -> Store:
        return await FolderStore.open(place / "folder", clock=own_clock, own_clock=own_clock, durable=False)


class TestPostgresBehindAServer(_HttpContract):
    """One schema for all tests: making it takes longer than most of them."""

    _last: ClassVar[tuple[str, Path] | None] = None

    async def behind(self, place: Path, own_clock: Clock) -> Store:
        url, last = self._last or (timed_url(16), place)
        type(self)._last = url, place
        if last != place:
            query(url, "TRUNCATE " + ", ".join("{schema}." + each for each in TABLES.split(", ")))
        return await open_timed(url, own_clock, own_clock)
