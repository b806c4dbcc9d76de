"""Live streams under load, on a server in a process of its own.

    python benchmarks/streams.py load [--readers 1000] [--runs 100] [--rate 100] [--seconds 60]
    python benchmarks/streams.py fanout [--readers 1000] [--events 20]
    python benchmarks/streams.py idle [--readers 5000] [--seconds 30]

`load`: so many writes per second over all runs, and readers spread over the runs; each must see every event once and in
order. `fanout`: all readers watch one run. `idle`: what streams cost that carry nothing. Delays are from the time of an
event, which is before its commit, to its arrival. The processor time of the server stands beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from served import TOKEN, Server  # noqa: E402
from tests.web.stream_readers import StreamReader, open_reader  # noqa: E402

import buoy  # noqa: E402


@buoy.step
async def tick(pause_s: float) -> None:
    await asyncio.sleep(pause_s)


@buoy.workflow
async def clock(ticks: int, pause_s: float) -> None:
    await buoy.wait_signal("go")  # all readers are there
    for _ in range(ticks):
        await tick(pause_s)


@buoy.workflow
async def quiet() -> None:
    await buoy.wait_signal("never")


async def _watch(server: Server, runs: list[str], readers: int) -> list[StreamReader]:
    found: list[StreamReader] = []
    for start in range(0, readers, 100):
        names = [runs[place % len(runs)] for place in range(start, min(start + 100, readers))]
        new = [await open_reader(server.port, f"/api/v1/runs/{name}/stream", TOKEN) for name in names]
        while not all(each.opened for each in new):
            await asyncio.sleep(0.01)
        found += new
    return found


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]


async def load(server: Server, given: argparse.Namespace) -> None:
    async with buoy.open(server.store, workflows=[clock]) as app:
        ticks, pause_s = int(given.rate * given.seconds / given.runs), given.runs / given.rate
        runs = [f"r{each}" for each in range(given.runs)]
        started = [await app.start_as(name, clock, ticks, pause_s) for name in runs]
        readers = await _watch(server, runs, given.readers)
        cpu, began, live = server.cpu_s(), time.monotonic(), [len(each.seen) for each in readers]
        for each in started:
            await each.signal("go")
        for each in started:
            await each.result()
        took_s = time.monotonic() - began
        while not all(each.lost or each.seen[-1:] == [ticks * 2 + 5] for each in readers):
            await asyncio.sleep(0.05)
    complete = sum(each.seen == list(range(1, ticks * 2 + 6)) for each in readers)
    # What was there when the stream opened was not live.
    delays = [delay for each, first in zip(readers, live, strict=True) for delay in each.delays_s[first:]]
    rate = given.runs * ticks / took_s
    print(
        f"{given.readers:,} readers of {given.runs} runs, {rate:.0f} writes/s for {took_s:.0f} s: "
        f"{complete:,} complete sequences, delay p50 {1e3 * statistics.median(delays):.0f} ms, "
        f"p99 {1e3 * _p99(delays):.0f} ms, server {100 * (server.cpu_s() - cpu) / took_s:.0f} % of a core"
    )


async def fanout(server: Server, given: argparse.Namespace) -> None:
    async with buoy.open(server.store, workflows=[clock]) as app:
        started = await app.start_as("r", clock, given.events, 1.0)
        readers = await _watch(server, ["r"], given.readers)
        cpu, live = server.cpu_s(), [len(each.seen) for each in readers]
        await started.signal("go")
        await started.result()
        while not all(each.seen[-1:] == [given.events * 2 + 5] for each in readers):
            await asyncio.sleep(0.01)
    spent = server.cpu_s() - cpu
    delays = [delay for each, first in zip(readers, live, strict=True) for delay in each.delays_s[first:]]
    groups = len(delays) / given.readers / 2
    print(
        f"one event to {given.readers:,} readers: p50 {1e3 * statistics.median(delays):.0f} ms, "
        f"p99 {1e3 * _p99(delays):.0f} ms; processor time of the server {1e3 * spent / max(groups, 1):.0f} ms for each"
    )


async def idle(server: Server, given: argparse.Namespace) -> None:
    async with buoy.open(server.store, workflows=[quiet]) as app:
        runs = [f"r{each}" for each in range(50)]
        for name in runs:
            await app.start_as(name, quiet)
        before = server.memory_mb()
        readers = await _watch(server, runs, given.readers)
        cpu = server.cpu_s()
        await asyncio.sleep(given.seconds)
        spent = server.cpu_s() - cpu
        memory = server.memory_mb() - before
        dropped = sum(each.lost for each in readers)
    print(
        f"{given.readers:,} idle streams ({dropped} dropped): {memory:.0f} MB, "
        f"{1e3 * memory / given.readers:.0f} kB each; {100 * spent / given.seconds:.1f} % of a core"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("load", "fanout", "idle"))
    options.add_argument("--readers", type=int)
    options.add_argument("--runs", type=int, default=100)
    options.add_argument("--rate", type=float, default=100.0)
    options.add_argument("--events", type=int, default=20)
    options.add_argument("--seconds", type=float)
    given = options.parse_args()
    given.readers = given.readers or (5_000 if given.what == "idle" else 1_000)
    given.seconds = given.seconds or (30.0 if given.what == "idle" else 60.0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * given.readers + 1_000), most))
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name))
        try:
            asyncio.run({"load": load, "fanout": fanout, "idle": idle}[given.what](server, given))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
