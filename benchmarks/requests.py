"""Requests: how many each operation of the object layout makes, counted exactly and compared with an earlier count.

Usage: requests.py [--bucket memory] [--only CASE]... [--small] [--json]

The engine is the real one; its time is skipped, so that a count is the same in every round and on every machine.
`--bucket` takes `memory`, or `MODULE:FUNCTION`: an async function that gets the name of a case and gives an empty
bucket of that name (`buoy.stores.objects.bucket.Bucket`): one of S3, or one that goes through a proxy. A bucket with a
method `billed` has its requests counted on their way, too; the script fails where the two counts differ.
Exit code: 0 no count has grown, 1 one has grown.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from pathlib import Path

from counting_bucket import Requests
from requests_cases import CASES, Found
from requests_world import MakeBucket, Sizes, opened

from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.buckets.memory import MemoryBucket

# PUT, GET, LIST and DELETE as counted by this script at 0.1.0. What is not here could not be asked for then.
BEFORE = {
    "register a runner": Requests(2, 0, 0, 0),
    "start by a client": Requests(5, 1, 0, 0),
    "start driven in the same process": Requests(5, 1, 0, 0),
    "claim of one due run": Requests(2, 4, 3, 1),
    "take it": Requests(3, 1, 2, 1),
    "32 sequential steps": Requests(33, 0, 0, 0),
    "a step of more than 30 s": Requests(1, 2, 1, 0),
    "the last step, and the end": Requests(2, 0, 0, 2),
    "run of 50 quick steps, all in": Requests(62, 6, 5, 4),
    "record of a run": Requests(0, 1, 2, 0),
    "events(limit=1) of that run": Requests(0, 52, 1, 0),
    "events() of that run": Requests(0, 52, 1, 0),
    "signal sent": Requests(3, 2, 3, 0),
    "owner reads it, and the run ends": Requests(2, 3, 7, 3),
    "the next look for work": Requests(0, 0, 2, 0),
    "a remote step": Requests(17, 12, 14, 5),
    "list page of 60 runs": Requests(0, 60, 121, 0),
    "buoy status, 30 ended, 30 waiting": Requests(0, 421, 493, 0),
    "whole sweep, 0 runners gone": Requests(0, 7, 12, 0),
    "whole sweep, 20 runners gone": Requests(0, 47, 12, 40),
    "whole sweep, 300 runners gone": Requests(0, 607, 12, 600),
    "whole sweep, 30 waiting runs held": Requests(0, 127, 192, 0),
    "look for orphans, 30 held": Requests(0, 31, 33, 0),
    "whole sweep, 30 waiting runs parked": Requests(0, 127, 222, 0),
    "look for orphans, 30 parked": Requests(0, 31, 63, 0),
}
# More than before on purpose.
# A registration reads whether its id was buried; in return it writes one object less.
# An end writes the entry of `index/` that a start wrote before.
ALLOWED = {
    "register a runner": Requests(get=1),
    "the last step, and the end": Requests(put=1),
    "owner reads it, and the run ends": Requests(put=1),
}
SMALL = Sizes(active=40, finished=100, gone=100)


async def memory(name: str) -> Bucket:
    return MemoryBucket(name=name)


def chosen(bucket: str) -> MakeBucket:
    """The maker of buckets that the command line names."""
    if bucket == "memory":
        return memory
    module, mark, function = bucket.partition(":")
    if not mark:
        raise SystemExit(f"unknown bucket {bucket!r}; write memory, or MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    make: MakeBucket = getattr(importlib.import_module(module), function)
    return make


async def count(make: MakeBucket, case: str, sizes: Sizes) -> Found:
    async with opened(make, case, sizes) as world:
        return await CASES[case](world)


def grown(name: str, now: Requests) -> bool:
    """Whether more of any kind of request is made than before."""
    before = BEFORE.get(name)
    more = ALLOWED.get(name, Requests())
    return before is not None and any(one > old + extra for one, old, extra in zip(now, before, more, strict=True))


def table(found: Found) -> str:
    lines = ["| operation | PUT | GET | LIST | DELETE | at 0.1.0 |", "|---|---|---|---|---|---|"]
    for name, now in found.items():
        before = BEFORE.get(name)
        if before is None:
            then = "-"
        elif before == now:
            then = "the same"
        else:
            then = " ".join(map(str, before)) + (" **grown**" if grown(name, now) else "")
        lines.append(f"| {name} | {' | '.join(map(str, now))} | {then} |")
    return "\n".join(lines)


def as_json(found: Found) -> str:
    rows = {
        name: {
            "now": now._asdict(),
            "before": None if (before := BEFORE.get(name)) is None else before._asdict(),
            "grown": grown(name, now),
        }
        for name, now in found.items()
    }
    return json.dumps(rows, indent=2)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bucket", default="memory")
    options.add_argument("--only", choices=sorted(CASES), action="append")
    options.add_argument("--small", action="store_true", help="few runs in the cases with many")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    make, found = chosen(given.bucket), Found()
    sizes = SMALL if given.small else Sizes()
    for case in given.only or CASES:
        found.update(asyncio.run(count(make, case, sizes)))
    print(as_json(found) if given.json else table(found))
    return 1 if any(grown(name, now) for name, now in found.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
