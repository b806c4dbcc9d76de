"""Takeover on a bucket: one of two workers gets SIGKILL with many runs in the middle of a step.

Usage: python benchmarks/s3_takeover.py [--runs N] [--json]

Starts SeaweedFS and a counting proxy before it. Prints the seconds from the kill until every run executes again. Beside
them stands the time of the detection and of 20 requests per run, at the rate of PUTs through the same proxy. A witness
file outside of the store counts the completed steps that were executed again.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from postgres_takeover import measure_at  # noqa: E402
from s3_speed import LANES, raw  # noqa: E402
from tests.s3.proxy import Proxy, proxy  # noqa: E402
from tests.s3.seaweed import KEY, SECRET, seaweed  # noqa: E402

from buoy.stores.objects.buckets.s3 import S3Bucket  # noqa: E402
from buoy.stores.objects.buckets.s3_address import parse_address  # noqa: E402
from buoy.stores.objects.store import METERED_PACE  # noqa: E402

REQUESTS_EACH = 20
RAW_WRITES = 1_000


async def raw_rate(url: str) -> float:
    bucket = await S3Bucket.open(parse_address(url))
    try:
        return await raw(bucket, RAW_WRITES, LANES, 1_000)
    finally:
        await bucket.close()


def measure(between: Proxy, runs: int) -> dict[str, float]:
    counts: dict[str, dict[str, int]] = {}
    busy_s: dict[str, float] = {}

    def at(moment: str) -> None:
        counts[moment] = dict(between.counts)
        busy_s[moment] = between.busy_s
        between.most_busy = between.busy if moment == "killed" else between.most_busy

    before = asyncio.run(raw_rate(between.url("raw-before")))
    found = measure_at(between.url("takeover"), runs, at)
    most_busy = between.most_busy
    rate = (before + asyncio.run(raw_rate(between.url("raw-after")))) / 2
    spent = {kind: counts["again"][kind] - counts["killed"].get(kind, 0) for kind in counts["again"]}
    limit_s = METERED_PACE.fleet_s + runs * REQUESTS_EACH / rate
    each = sum(spent.values()) / runs
    at_once = (busy_s["again"] - busy_s["killed"]) / found["seconds"]
    return {
        **found, "limit_s": limit_s, "raw_per_s": rate, "requests_each": each, **spent, "at_once": at_once,
        "at_once_most": most_busy,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    with tempfile.TemporaryDirectory() as folder, seaweed(Path(folder)) as server, proxy(server) as between:
        found = measure(between, args.runs)
    if args.json:
        sys.stdout.write(json.dumps({"load": load, **found}) + "\n")
        return 0
    verdict = "met" if found["seconds"] <= found["limit_s"] and not found["repeated"] else "MISSED"
    sys.stdout.write(
        f"load {load:.1f}: {args.runs} runs of a killed worker execute again after {found['seconds']:.1f} s "
        f"(at most {found['limit_s']:.1f} s: {METERED_PACE.fleet_s:.0f} s to find it and {REQUESTS_EACH} requests "
        f"for each at {found['raw_per_s']:.0f} PUT/s), completed steps repeated: {found['repeated']:.0f}: {verdict}\n"
        f"requests for each: {found['requests_each']:.1f} ("
        + ", ".join(f"{found[kind] / args.runs:.1f} {kind}" for kind in ("PUT", "GET", "LIST", "DELETE"))
        + f"); under way at once: {found['at_once']:.1f} on average, {found['at_once_most']:.0f} at most\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
