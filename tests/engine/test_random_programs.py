"""Random programs: whatever nesting of tasks, limits, races and retries a seed gives, its log replays exactly.

A program is plain data; one workflow interprets it and writes down all that happens in the order in which its code saw
it. Any difference of order between the first execution and a replay shows in that trace, or as a divergence.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e

from .harness import (
    cuts,
    ended_leaves,
    log_of,
    opened,
    outcome_of,
    plant,
    renamed,
    replayed,
    result_of,
    store_at,
    without_end,
)

SEEDS_EACH = 8
DEPTH_MAX = 4
RAN: Counter[tuple[str, str]] = Counter()


@buoy.step
async def takes(span_ms: int, value: int) -> int:
    """Ends after a while. Here time is the workload: which of two steps ends first is what the seeds vary."""
    info = buoy.info()
    RAN[info.run_id, str(info.leaf)] += 1
    await asyncio.sleep(span_ms / 1000)
    return value


@buoy.step
async def breaks(span_ms: int) -> int:
    info = buoy.info()
    RAN[info.run_id, str(info.leaf)] += 1
    await asyncio.sleep(span_ms / 1000)
    raise ValueError(f"after {span_ms}")


@buoy.step(retries=3, backoff="1ms")
async def tries(good_from: int) -> int:
    info = buoy.info()
    RAN[info.run_id, str(info.leaf)] += 1
    if (info.attempt or 0) < good_from:
        raise ConnectionError("again")
    return good_from


@buoy.step
def in_thread(value: int) -> int:
    info = buoy.info()
    RAN[info.run_id, str(info.leaf)] += 1
    return value


@buoy.workflow
async def interprets(program: list[Any]) -> list[Any]:
    trace: list[Any] = []
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock = asyncio.Lock()

    async def run(node: list[Any]) -> Any:
        kind, *rest = node
        try:
            found = await KINDS[kind](*rest)
        except BaseException as error:
            trace.append([kind, type(error).__name__])
            raise
        trace.append([kind, found])
        return found

    async def seq(*nodes: list[Any]) -> int:
        return sum([await run(node) for node in nodes])

    async def gather(*nodes: list[Any]) -> int:
        return sum(await asyncio.gather(*(run(node) for node in nodes)))

    async def settle(*nodes: list[Any]) -> int:
        found = await asyncio.gather(*(run(node) for node in nodes), return_exceptions=True)
        return sum(each for each in found if isinstance(each, int))

    async def group(*nodes: list[Any]) -> int:
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(run(node)) for node in nodes]
        return sum(task.result() for task in made)

    async def first(*nodes: list[Any]) -> int:
        made = [asyncio.create_task(run(node)) for node in nodes]
        done, pending = await asyncio.wait(made, return_when=asyncio.FIRST_COMPLETED)
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)
        return 100 * len(done) + len(pending)

    async def race(*nodes: list[Any]) -> int:
        place = 1
        total = 0
        for each in asyncio.as_completed([run(node) for node in nodes]):
            total += place * await each
            place += 1
        return total

    async def limit(span_ms: int, node: list[Any]) -> int:
        try:
            async with asyncio.timeout(span_ms / 1000):
                return await run(node)
        except TimeoutError:
            return -1

    async def wait_for(span_ms: int, node: list[Any]) -> int:
        try:
            return await asyncio.wait_for(run(node), span_ms / 1000)
        except TimeoutError:
            return -2

    async def shield(span_ms: int, node: list[Any]) -> int:
        inner = asyncio.ensure_future(run(node))
        try:
            async with asyncio.timeout(span_ms / 1000):
                return await asyncio.shield(inner)
        except TimeoutError:
            return 1000 + await inner

    async def attempt(node: list[Any]) -> int:
        try:
            return await run(node)
        except (buoy.StepFailed, ExceptionGroup):
            return -3

    async def ensure(node: list[Any], last: list[Any]) -> int:
        try:
            return await run(node)
        finally:
            await run(last)

    async def give(node: list[Any]) -> int:
        queue.put_nowait(await run(node))
        return await queue.get()

    async def alone(node: list[Any]) -> int:
        async with lock:
            return await run(node)

    async def nap(span_ms: int) -> int:
        await asyncio.sleep(span_ms / 1000)
        return 0

    # `alone` within `alone` would wait for itself, so programs have it at their leaves only.
    KINDS = {
        "takes": takes,
        "breaks": breaks,
        "tries": tries,
        "in_thread": in_thread.call,
        "nap": nap,
        "seq": seq,
        "gather": gather,
        "settle": settle,
        "group": group,
        "first": first,
        "race": race,
        "limit": limit,
        "wait_for": wait_for,
        "shield": shield,
        "attempt": attempt,
        "ensure": ensure,
        "give": give,
        "alone": alone,
    }
    try:
        trace.append(["result", await run(program)])
    except (buoy.StepFailed, ExceptionGroup) as error:
        trace.append(["failed", type(error).__name__])
    return trace


def program(chance: random.Random, depth: int = 0) -> list[Any]:
    """A random program; the deeper, the more likely a leaf."""
    if depth >= DEPTH_MAX or chance.random() < 0.15 * depth:
        return leaf(chance)
    several = ("seq", "gather", "settle", "group", "first", "race")
    kind = chance.choice([*several, *several, "limit", "wait_for", "shield", "attempt", "ensure", "give"])
    if kind in several:
        return [kind, *(program(chance, depth + 1) for _ in range(chance.randint(2, 3)))]
    if kind in ("limit", "wait_for", "shield"):
        return [kind, chance.randint(1, 12), program(chance, depth + 1)]
    if kind == "ensure":
        return [kind, program(chance, depth + 1), leaf(chance)]
    return [kind, program(chance, depth + 1)]


def leaf(chance: random.Random) -> list[Any]:
    match chance.randint(0, 9):
        case 0:
            return ["breaks", chance.randint(0, 6)]
        case 1:
            return ["tries", chance.randint(1, 4)]
        case 2:
            return ["nap", chance.randint(0, 5)]
        case 3:
            return ["in_thread", chance.randint(1, 9)]
        case 4:
            return ["alone", ["takes", chance.randint(0, 4), chance.randint(1, 9)]]
        case _:
            return ["takes", chance.randint(0, 8), chance.randint(1, 9)]


@pytest.mark.parametrize("first_seed", range(0, 48, SEEDS_EACH))
async def test_the_log_of_a_random_program_replays_exactly(first_seed: int, url: str) -> None:
    seeds = range(first_seed, first_seed + SEEDS_EACH)
    logs = {}
    async with opened(url, interprets) as app:
        runs = {seed: await app.start_as(f"seed{seed}x", interprets, program(random.Random(seed))) for seed in seeds}
        for seed, run in runs.items():
            await result_of(app, run)
            logs[seed] = await log_of(app, run.id)
    for seed, log in logs.items():
        for piece in cuts(log):
            appended = await replayed(interprets, piece)
            where = f"seed {seed}, cut after event {len(piece)}: {appended}"
            assert [type(body) for body in appended] == [e.Claimed], where
        last = await replayed(interprets, without_end(log))
        assert [type(body) for body in last] == [e.Claimed, e.WorkflowCompleted], f"seed {seed}: {last}"
        assert bytes(last[-1].result) == bytes(log[-1].body.result), f"seed {seed}"


@pytest.mark.parametrize("first_seed", range(100, 124, SEEDS_EACH))
async def test_a_random_program_cut_at_random_goes_on_to_its_end(first_seed: int, url: str, tmp_path: Path) -> None:
    """Three crashes in a row for each program: cut, continue elsewhere, cut again."""
    seeds = range(first_seed, first_seed + SEEDS_EACH)
    names = {seed: f"seed{seed}x" for seed in seeds}
    pieces: dict[int, list[e.Event]] = {}
    async with opened(url, interprets) as app:
        for seed in seeds:
            await app.start_as(names[seed], interprets, program(random.Random(seed)))
        for seed in seeds:
            assert (await outcome_of(app, await app.get(names[seed])))[0] == "completed"
            pieces[seed] = random.Random(seed).choice([*cuts(await log_of(app, names[seed]))])
    for crash in range(3):
        RAN.clear()
        place = f"sqlite:///{tmp_path}/crash{crash}.db"
        old, names = names, {seed: f"seed{seed}c{crash}x" for seed in seeds}
        async with store_at(place) as store:
            for seed in seeds:
                await plant(store, names[seed], renamed(pieces[seed], old[seed], names[seed]))
        async with opened(place, interprets) as app:
            for seed in seeds:
                assert (await outcome_of(app, await app.get(names[seed])))[0] == "completed", f"seed {seed}"
                log = await log_of(app, names[seed])
                again = {leaf for run, leaf in RAN if run == names[seed]} & ended_leaves(pieces[seed])
                assert not again, f"seed {seed}, crash {crash}: {again} ran again"
                assert [event.type for event in log].count("paused") == 0
                pieces[seed] = random.Random(seed + crash).choice(cuts(log))
