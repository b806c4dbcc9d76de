"""The incident cases in a real bucket: found, recovered and settled as in every other store."""

from __future__ import annotations

import asyncio

import pytest

from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from tests.cases.test_cases import CASES, NOW, Case, play_case

from .seaweed import Seaweed


@pytest.mark.parametrize("name", CASES)
def test_a_case_in_a_bucket_is_diagnosed_and_recovered_as_expected(server: Seaweed, prefix: str, name: str) -> None:
    async def play() -> None:
        clock = ManualClock(NOW)
        bucket = await S3Bucket.open(parse_address(server.url(prefix)))
        await play_case(Case(name), await ObjectStore.on(bucket, clock=clock), clock)

    asyncio.run(play())
