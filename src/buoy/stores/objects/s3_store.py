"""The S3 store: the object store in a bucket, for processes on any machines."""

from __future__ import annotations

from buoy.ports.host import Clock
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address
from buoy.stores.objects.store import ObjectStore


async def open_s3(url: str, clock: Clock) -> ObjectStore:
    """The store below that address, made if the place is empty."""
    bucket = await S3Bucket.open(parse_address(url))
    try:
        return await ObjectStore.on(bucket, clock=clock)
    except BaseException:
        await bucket.close()
        raise
