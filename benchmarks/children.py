"""Children: how the time for one run with many children grows with their number, on a store of each kind.

Usage: children.py [--store file] [--counts 30,100,300]

Prints one line of JSON for each number. What one child costs should stay about the same: a folder does some 30 calls
for it, whatever the number of its siblings. All children end at about the same time, which is the hard case: each
tells its parent, and all write to one inbox.
"""

import argparse
import asyncio
import json
import tempfile
from time import perf_counter, process_time

import buoy


@buoy.workflow
async def child(number: int) -> int:
    return number


@buoy.workflow
async def parent(count: int) -> int:
    return sum(await asyncio.gather(*(child(number) for number in range(count))))


async def measure(store: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/runs.db" if store == "sqlite" else f"file://{folder}/runs"
        async with buoy.open(url, workflows=[parent, child]) as app:
            wall, cpu = perf_counter(), process_time()
            assert await (await app.start(parent, count)).result() == sum(range(count))
            wall_s, cpu_s = perf_counter() - wall, process_time() - cpu
    each = {"wall_ms_each": round(1e3 * wall_s / count, 1), "cpu_ms_each": round(1e3 * cpu_s / count, 1)}
    print(json.dumps({"store": store, "children": count, "wall_s": round(wall_s, 2), **each}), flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--store", choices=("file", "sqlite"), default="file")
    options.add_argument("--counts", default="30,100,300")
    given = options.parse_args()
    for count in given.counts.split(","):
        asyncio.run(measure(given.store, int(count)))


if __name__ == "__main__":
    main()
