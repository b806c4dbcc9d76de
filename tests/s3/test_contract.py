"""The contract of a store, kept by the object layout in a real bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.ports.host import Clock
from buoy.ports.store import Store
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts import StoreContract

from .seaweed import Seaweed


class TestS3Store(StoreContract):
    server: Seaweed

    @pytest.fixture(autouse=True)
    def on_the_server(self, server: Seaweed) -> None:
        self.server = server

    async def open(self, place: Path, clock: Clock) -> Store:
        # Without the probe, which takes seconds: `test_probe` has it. The order of listings is this server's own.
        bucket = await S3Bucket.open(parse_address(self.server.url(place.name)))
        return await ObjectStore.on(bucket, clock=clock)
