"""The contract of a store, kept by the object layout in a real bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.ports.host import Clock
from buoy.ports.store import Store
from buoy.stores.objects.s3_store import open_s3
from buoy.testing.contracts import StoreContract

from .seaweed import Seaweed


class TestS3Store(StoreContract):
    server: Seaweed

    @pytest.fixture(autouse=True)
    def on_the_server(self, server: Seaweed) -> None:
        self.server = server

    async def open(self, place: Path, clock: Clock) -> Store:
        return await open_s3(self.server.url(place.name), clock)
