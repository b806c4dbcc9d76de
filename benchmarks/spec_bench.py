"""Spec bench: how long large specs take to compile, and how fast their steps run beside those of code.

Usage: spec_bench.py [--steps 20000] [--edges 100000] [--compile 100000] [--commands 100]

Prints one line of JSON for each measurement. `of_code` is the step rate as a share of that of a code workflow. Both run
the same number of empty steps, as many at a time, in the same process.
"""

import argparse
import asyncio
import gc
import random
import sys
import tempfile
from pathlib import Path
from time import process_time

import msgspec
import yaml
from stopwatch import Stopwatch, report

import buoy
from buoy.core.limits import SPEC_PARALLEL
from buoy.engine.spec.workflow import load_spec

sys.modules.setdefault("spec_bench", sys.modules[__name__])


async def noop() -> int:
    return 1


@buoy.step
async def empty(i: int) -> int:
    return i


@buoy.workflow
async def fan(n: int, at_once: int) -> int:
    """As many steps as the spec has, as many at a time."""
    done = 0

    async def lane(first: int) -> None:
        nonlocal done
        for i in range(first, n, at_once):
            await empty(i)
            done += 1

    await asyncio.gather(*(lane(first) for first in range(at_once)))
    return done


def graph(steps: int, edges: int, **work: str) -> dict[str, object]:
    """A spec whose steps need some of the two hundred before them."""
    chance = random.Random(1)
    each = edges // steps
    listed = []
    for n in range(steps):
        before = {f"s{chance.randrange(max(0, n - 200), n)}" for _ in range(each)} if n else set()
        listed.append({"id": f"s{n}", "needs": sorted(before), **work})
    return {"name": "bench", "steps": listed}


def compile_bench(steps: int, folder: Path) -> None:
    for suffix, text in (("yaml", yaml.safe_dump), ("json", lambda data: msgspec.json.encode(data).decode())):
        path = folder / f"big.{suffix}"
        path.write_text(text(graph(steps, 5 * steps, run="true")))
        gc.collect()
        watch, cpu = Stopwatch(), process_time()
        workflow = load_spec(path)
        seconds, cpu_s = watch.elapsed_s(), process_time() - cpu
        assert len(workflow.spec.steps) == steps
        report({"what": f"compile_{suffix}", "steps": steps, "seconds": seconds, "cpu_s": cpu_s})


async def run_bench(steps: int, edges: int, folder: Path) -> None:
    path = folder / "calls.json"
    path.write_bytes(msgspec.json.encode(graph(steps, edges, call="spec_bench:noop")))
    workflow = load_spec(path)
    options = buoy.RunnerOptions(calls=("spec_bench",))
    async with buoy.open(f"sqlite:///{folder}/code.db", workflows=[fan], options=options) as app:
        watch = Stopwatch()
        assert await (await app.start(fan, steps, SPEC_PARALLEL)).result() == steps
        code = watch.rate(steps)
    async with buoy.open(f"sqlite:///{folder}/spec.db", workflows=[workflow], options=options) as app:
        watch = Stopwatch()
        run = await app.start(workflow)
        found = await run.result()
        rate = watch.rate(steps)
        assert found["completed"] == steps, found
    report({"what": "calls", "steps": steps, "edges": edges, "steps_per_s": rate, "code_steps_per_s": code,
            "of_code": rate / code})  # fmt: skip


async def commands_bench(count: int, folder: Path) -> None:
    path = folder / "commands.json"
    path.write_bytes(msgspec.json.encode({"name": "commands", "parameters": {"k": f"1:{count}"},
                                          "steps": [{"id": "c_{k}", "run": "true"}]}))  # fmt: skip
    workflow = load_spec(path)
    async with buoy.open(f"sqlite:///{folder}/commands.db", workflows=[workflow]) as app:
        watch = Stopwatch()
        await (await app.start(workflow)).result()
        report({"what": "commands", "steps": count, "steps_per_s": watch.rate(count)})


def main() -> None:
    parser = argparse.ArgumentParser(description="Large specs.")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--compile", type=int, default=100_000)
    parser.add_argument("--commands", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_bench(args.compile, folder)
        asyncio.run(run_bench(args.steps, args.edges, folder))
        asyncio.run(commands_bench(args.commands, folder))


if __name__ == "__main__":
    main()
