"""Store benchmark: joins `buoy bench-store` to the bucket that a URL names. Part of the wiring."""

from __future__ import annotations

from buoy.errors import BadInput
from buoy.host.clock import SystemClock
from buoy.stores import open_store
from buoy.stores.objects.bench import Measured, measure
from buoy.stores.objects.store import ObjectStore


async def bench_store(url: str, *, number: int, at_once: int) -> tuple[str, list[Measured], dict[str, int]]:
    """The store's name, what was measured on its bucket, and the requests that it took."""
    clock = SystemClock()
    store = await open_store(url, clock)
    try:
        if not isinstance(store, ObjectStore):
            raise BadInput(f"{store.name} is no bucket; name a store such as s3://bucket/prefix or file:///folder")
        found = await measure(store.bucket, clock, number=number, at_once=at_once)
        return store.name, found, store.requests
    finally:
        await store.close()


__all__ = ["Measured", "bench_store"]
