"""Buckets on a server that a test has started, each reached through a counting proxy in this process.

For `benchmarks/requests.py --bucket tests.s3.counted:make`: each count is compared with the proxy's. The environment
variable `BUOY_COUNTED_PORTS` has the ports of the server.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

from counting_bucket import Requests

from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address

from .planted import plant_objects
from .proxy import Proxy
from .seaweed import Seaweed


class BilledBucket(S3Bucket):
    """A bucket whose requests a proxy counts."""

    between: Proxy

    def billed(self) -> Requests:
        counts = self.between.counts
        return Requests(counts["PUT"], counts["GET"], counts["LIST"], counts["DELETE"])

    async def plant(self, made: Mapping[str, bytes]) -> None:
        """Objects that are there before anything is counted, so they need not come through the proxy."""
        await asyncio.to_thread(plant_objects, self.between.server, self._address.prefix, made)

    async def close(self) -> None:
        await super().close()
        self.between.close()


async def make(name: str) -> BilledBucket:
    """An empty bucket of that name."""
    server = Seaweed(Path("unused"))
    server.ports = json.loads(os.environ["BUOY_COUNTED_PORTS"])
    server.port = server.ports["s3.port"]
    between = Proxy(server)
    between.serve()
    bucket = BilledBucket(parse_address(between.url(f"counted-{os.getpid()}-{name}")))
    bucket.between = between
    return bucket
