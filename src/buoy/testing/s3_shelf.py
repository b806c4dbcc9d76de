"""The S3 store of one crash scenario: a prefix of its own, below the place of the configured store.

Invariants: the prefix is new and everything below it is removed with its scenario, so that no other object is touched.
The bucket is probed once, and the result stays in the folder of crash tests. The address stays in the configuration:
nothing writes it down.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from msgspec.structs import replace

from buoy.config import STORE_VARIABLE, configured_store
from buoy.errors import BadInput
from buoy.ports.host import Clock
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import Address, parse_address
from buoy.stores.objects.s3_store import know_bucket
from buoy.stores.objects.store import ObjectStore

_SCHEMES = ("s3", "gs", "az")
_FOLDER = "buoy-crashtest"


class S3Shelf:
    """A prefix for the scenario that has this folder."""

    def __init__(self, folder: Path) -> None:
        self._tests = _below(_bucket(), _FOLDER)
        # The processes of a scenario know its folder, so they agree on the name.
        self._place = _below(self._tests, hashlib.sha256(str(folder).encode()).hexdigest()[:20])

    async def open(self, clock: Clock) -> ObjectStore:
        # Never closed: that waits for a moment, and in a scenario a moment is simulated time.
        around = await S3Bucket.open(self._tests)
        await know_bucket(around, self._tests)
        bucket = await S3Bucket.open(self._place)
        bucket.etag_form, bucket.lists_in_byte_order = around.etag_form, around.lists_in_byte_order
        return await ObjectStore.on(bucket, clock=clock, single_host=True)

    def remove(self) -> None:
        """Removes what the scenario has stored. A prefix without objects is no error."""
        asyncio.run(self._remove())

    async def _remove(self) -> None:
        bucket = await S3Bucket.open(self._place)
        try:
            await bucket.delete_many(await bucket.list(""))
        finally:
            await bucket.close()


def _bucket() -> Address:
    url = configured_store()
    if url.partition("://")[0] not in _SCHEMES:
        raise BadInput(
            f"no bucket for the crash test: the configured store is {url.partition(':')[0]}; "
            f"set {STORE_VARIABLE} to 's3://bucket/prefix'"
        )
    return parse_address(url)


def _below(address: Address, name: str) -> Address:
    return replace(address, prefix=f"{address.prefix}/{name}" if address.prefix else name)
