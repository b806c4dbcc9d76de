"""A process that commits a run for each line that it reads, and says so: `python -m tests.stores.lost_store URL`."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from buoy.core.ids import RunId
from buoy.errors import StoreLost
from buoy.host.clock import SystemClock
from buoy.stores import open_store
from buoy.testing.contracts.harness import Author


async def main(url: str) -> None:
    store = await open_store(url, SystemClock())
    nonces = count(1)
    for number in range(1, 1_000_000):
        sys.stdin.readline()
        try:
            await Author(RunId(f"run-{number}"), SystemClock(), nonces, {}).create(store)
        except StoreLost as error:
            print(f"lost {error}", flush=True)
            continue
        print(f"acknowledged run-{number}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
