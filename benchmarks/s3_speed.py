"""How near the engine comes to what a bucket itself can do: ratios of one run on one server.

    BUOY_STORE=s3://bucket/prefix?endpoint=... python benchmarks/s3_speed.py [--runs 200] [--steps 200]

Sequential steps against conditional PUTs of the same size one after the other. Runs in parallel against conditional
PUTs with 64 at once; there all PUTs of the engine count, those of starts and ends too. Give it an empty place.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time

import buoy
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address

LANES = 64
STEPS_PARALLEL = 5


@buoy.step
async def add(a: int, b: int) -> int:
    return a + b


@buoy.workflow
async def chain(steps: int) -> int:
    total = 0
    for number in range(steps):
        total = await add(total, number)
    return total


async def raw(bucket: S3Bucket, number: int, at_once: int, size: int) -> float:
    """Conditional PUTs per second."""
    room, place = asyncio.Semaphore(at_once), f"probe/raw-{at_once}-{time.time_ns()}/"

    async def one(each: int) -> None:
        async with room:
            await bucket.create(f"{place}{each:06}", b"x" * size)

    start = time.perf_counter()
    await asyncio.gather(*(one(each) for each in range(number)))
    return number / (time.perf_counter() - start)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    url = os.environ["BUOY_STORE"]
    bucket = await S3Bucket.open(parse_address(url))
    async with buoy.open(url, workflows=[chain]) as app:
        await (await app.start(chain, 5)).result()
        size = 1_000
        one_before = await raw(bucket, options.steps, 1, size)
        start = time.perf_counter()
        await (await app.start(chain, options.steps)).result()
        steps = options.steps / (time.perf_counter() - start)
        one_after = await raw(bucket, options.steps, 1, size)
        many_before = await raw(bucket, options.runs * STEPS_PARALLEL, LANES, size)
        before = app.store.requests["PUT"]
        start = time.perf_counter()
        runs = await asyncio.gather(*(app.start(chain, STEPS_PARALLEL) for _ in range(options.runs)))
        await asyncio.gather(*(each.result() for each in runs))
        span_s = time.perf_counter() - start
        puts = app.store.requests["PUT"] - before
        many_after = await raw(bucket, options.runs * STEPS_PARALLEL, LANES, size)
    found = {
        "raw_sequential_per_s": (one_before + one_after) / 2,
        "steps_per_s": steps,
        "sequential_ratio": steps / ((one_before + one_after) / 2),
        "raw_concurrent_per_s": (many_before + many_after) / 2,
        "parallel_steps_per_s": options.runs * STEPS_PARALLEL / span_s,
        "parallel_puts_per_s": puts / span_s,
        "parallel_ratio": puts / span_s / ((many_before + many_after) / 2),
    }
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
