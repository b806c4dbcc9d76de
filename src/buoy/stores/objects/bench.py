"""Bucket benchmark: the latency and the rate of each call on a user's own bucket, for `buoy bench-store`.

Invariant: it writes below `probe/` only, and removes what it wrote.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from buoy.ports.host import Clock
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.probe import PROBE

# As large as a commit of one step.
BODY = b"x" * 1_024


class Measured(msgspec.Struct, frozen=True):
    """One kind of call. `per_s`: finished calls in a second, `at_once` of them in parallel."""

    call: str
    number: int
    median_ms: float
    p95_ms: float
    per_s: float
    at_once: int


async def measure(bucket: Bucket, clock: Clock, *, number: int, at_once: int) -> list[Measured]:
    """Each call one after the other for its latency, then many at once for the rate."""
    place = f"{PROBE}{secrets.token_hex(8)}/"
    keys = [f"{place}{each:06}" for each in range(number)]
    found: list[Measured] = []
    try:
        etags = dict.fromkeys(keys, "")

        async def create(key: str) -> None:
            etags[key] = await bucket.create(key, BODY)

        async def replace(key: str) -> None:
            etags[key] = await bucket.replace(key, BODY + key.encode(), etags[key])

        calls: list[tuple[str, Callable[[str], Awaitable[object]]]] = [
            ("create (PUT If-None-Match)", create),
            ("replace (PUT If-Match)", replace),
            ("read (GET)", bucket.get),
            ("poll (GET If-None-Match)", lambda key: bucket.get_unless(key, etags[key])),
            ("list (LIST)", lambda key: bucket.list(place)),
            ("delete (DELETE)", bucket.delete),
        ]
        for name, call in calls:
            found.append(await _measured(name, call, keys, clock, at_once))
    finally:
        left = await bucket.list(place)
        if left:
            await bucket.delete_many(left)
    return found


async def _measured(
    name: str, call: Callable[[str], Awaitable[object]], keys: Sequence[str], clock: Clock, at_once: int
) -> Measured:
    """The first half of the keys one by one, the second half many at once."""
    half = len(keys) // 2
    times: list[float] = []
    for key in keys[:half]:
        start = clock.monotonic()
        await call(key)
        times.append((clock.monotonic() - start) * 1_000)
    room = asyncio.Semaphore(at_once)

    async def one(key: str) -> None:
        async with room:
            await call(key)

    start = clock.monotonic()
    await asyncio.gather(*map(one, keys[half:]))
    span_s = max(clock.monotonic() - start, 1e-9)
    times.sort()
    return Measured(
        name, len(keys), times[half // 2], times[min(half - 1, half * 95 // 100)], (len(keys) - half) / span_s, at_once
    )
