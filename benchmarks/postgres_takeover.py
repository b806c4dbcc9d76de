"""Takeover: one of two workers gets SIGKILL with many runs in the middle of a step.

Measures from the kill until every run of the dead worker executes again on the other. A witness file outside of the
store counts the completed steps that were executed again.

Usage: python benchmarks/postgres_takeover.py [--runs N] [--store postgres|sqlite] [--json]
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import sleep, time

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.postgres_server import start_server  # noqa: E402

import buoy  # noqa: E402
from buoy.core.log.lifecycle import TERMINAL, Status  # noqa: E402

WITNESS = "BENCH_WITNESS"
# How soon a runner of the same host is looked for.
DETECTION_S = 1.0
TARGET_S = 5.0
TIMEOUT_S = 240.0
LOOK_S = 0.05


def tell(what: str) -> None:
    info = buoy.info()
    line = f"{time():.3f} {os.getpid()} {info.run_id} {what}\n"
    handle = os.open(os.environ[WITNESS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, line.encode())
    os.close(handle)


@buoy.step
async def first(n: int) -> int:
    tell("first")
    return n


@buoy.step
async def held(n: int) -> int:
    tell("held")
    while not Path(os.environ[WITNESS] + ".go").exists():
        await asyncio.sleep(0.5)
    return n


@buoy.workflow
async def two_steps(n: int) -> int:
    return await first(n) + await held(n)


def seen(witness: Path) -> list[list[str]]:
    return [line.split() for line in witness.read_text().splitlines()] if witness.exists() else []


def wait_for(holds: object, what: str) -> None:
    ends = time() + TIMEOUT_S
    while not holds():  # type: ignore[operator]
        assert time() < ends, f"waited in vain for {what}"
        sleep(LOOK_S)


async def start(url: str, runs: int) -> None:
    async with buoy.connect(url) as client:
        await asyncio.gather(*(client.start_as(f"r{n}", two_steps, n) for n in range(runs)))


async def finished(url: str) -> None:
    """Waits until no run is active. Where each read is billed, a count does not tell all that ended by status."""
    async with buoy.connect(url) as client, asyncio.timeout(TIMEOUT_S):
        while True:
            counts = await client.store.counts()
            if not sum(counts.get(str(status), 0) for status in Status if status not in TERMINAL):
                return
            await asyncio.sleep(LOOK_S)


def measure(kind: str, runs: int) -> dict[str, float]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            return measure_at(f"sqlite:///{folder}/runs.db", runs)
    server = start_server(18)
    try:
        return measure_at(server.url("takeover"), runs)
    finally:
        server.stop()


def measure_at(url: str, runs: int, at: Callable[[str], None] = lambda moment: None) -> dict[str, float]:
    """`at` is called at the moments `killed` and `again`."""
    with tempfile.TemporaryDirectory() as folder:
        witness = Path(folder, "witness")
        env = {**os.environ, WITNESS: str(witness), "BUOY_STORE": url}
        os.environ[WITNESS] = str(witness)
        words = [sys.executable, "-m", "buoy", "worker", str(Path(__file__).resolve()), "--no-specs"]
        asyncio.run(start(url, runs))
        victim = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
        wait_for(lambda: sum(each[3] == "held" for each in seen(witness)) >= runs, "all runs to be in their step")
        heir = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
        sleep(4.0)  # the other worker is up and idle
        victim.send_signal(signal.SIGKILL)
        killed = time()
        at("killed")
        victim.wait()
        try:
            again = lambda: {each[2] for each in seen(witness) if each[1] == str(heir.pid) and each[3] == "held"}  # noqa: E731
            wait_for(lambda: len(again()) >= runs, "the other worker to execute all of them")
            at("again")
            last = max(float(each[0]) for each in seen(witness) if each[1] == str(heir.pid))
            Path(f"{witness}.go").touch()
            asyncio.run(finished(url))
        finally:
            heir.send_signal(signal.SIGTERM)
            heir.wait(TIMEOUT_S)
        counts = Counter(each[2] for each in seen(witness) if each[3] == "first")
    return {"runs": runs, "seconds": last - killed, "repeated": sum(counts.values()) - len(counts)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    found = measure(args.store, args.runs)
    if args.json:
        sys.stdout.write(json.dumps({"load": load, **found}) + "\n")
        return 0
    limit_s = DETECTION_S + TARGET_S
    verdict = "met" if found["seconds"] <= limit_s and not found["repeated"] else "MISSED"
    sys.stdout.write(
        f"{args.store}, load {load:.1f}: "
        f"{args.runs} runs of a killed worker execute again after {found['seconds']:.2f} s "
        f"(target {limit_s:g} s with the detection), completed steps repeated: {found['repeated']:.0f}: {verdict}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
