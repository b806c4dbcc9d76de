"""Stores where thousands of processes ran before: what a look and a sweep cost there, and what is kept of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from buoy.core.ids import RunnerId
from buoy.core.limits import RUNNERS_GONE_KEPT, RUNNERS_GONE_SHOWN, RUNNERS_RETIRED_MAX
from buoy.engine.client.client import Client
from buoy.host.clock import SystemClock
from buoy.host.lock_files import LockFiles
from buoy.operations.inspect.troubles import all_troubles
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import examine
from buoy.recovery.sweep.scan import scan
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from buoy.stores import open_store
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.records import RunnerObject
from buoy.stores.objects.runners import keys as runner_keys
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from tests.core.logbook import claimed, started
from tests.host.test_processes import record, runner_process

from .harness import Deaths, RecoveryHarness, created

FEW, MANY = 2_000, 10_000
WRITES = ("create", "replace", "delete")


class Counting(MemoryBucket):
    """Counts the calls by their kind; a listing of n names counts as the requests that S3 needs for them."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()
        self.of_runners = 0

    async def _call(self, operation: str, key: str, phase: str) -> None:
        if phase == "before":
            self.counts[operation] += 1
            self.of_runners += key.startswith(layout.RUNNERS)
        await super()._call(operation, key, phase)

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        found = await super().list(prefix, after, limit)
        self.counts["list"] += len(found) // 1_000
        return found


async def _many_dead(dead: int, *, entries: bool = True) -> tuple[Counting, RecoveryHarness]:
    """A store where so many runners went. Without `entries` they went under a release that kept no `gone/`."""
    bucket, clock = Counting(), ManualClock()
    harness = RecoveryHarness(await ObjectStore.on(bucket, clock=clock, single_host=True), clock, Deaths())
    for number in range(dead):
        name = RunnerId(f"runner-{number:06}")
        info = RunnerInfo(
            id=name, host="host", boot_id="boot", pid_namespace="ns", pid=number, process_started="1", nonce=name
        )
        gone_at = float(number)
        found = RunnerRecord(info, gone_at, gone_at, Beat(number=1), gone_at=gone_at, gone_why="stopped")
        await bucket.create(runner_keys.runner_key(name), msgspec.json.encode(RunnerObject(1, found)))
        if entries:
            await bucket.create(runner_keys.gone_key(name, gone_at), b"{}")
    alive = await harness.runner("alive")
    await harness.left_by(alive, "held", created(), claimed("alive"), started("a#1"))
    bucket.counts.clear()
    return bucket, harness


def test_a_look_costs_the_same_however_many_runners_went_before() -> None:
    async def cost(dead: int) -> Counter[str]:
        bucket, harness = await _many_dead(dead)
        people = await read_fleet(harness.store, harness.deaths)
        assert len(people.living) == 1 and len(people.all) == 1 + RUNNERS_GONE_SHOWN
        await examine(harness.client, (await harness.record("held")).document.run_id)
        assert not any(bucket.counts[kind] for kind in WRITES), "a look writes and deletes nothing"
        return bucket.counts

    few, many = asyncio.run(cost(FEW)), asyncio.run(cost(MANY))
    assert few == many
    assert sum(many.values()) <= 3 * RUNNERS_GONE_SHOWN + 50


def test_a_sweep_costs_the_same_however_many_runners_went_before() -> None:
    async def cost(dead: int) -> Counter[str]:
        bucket, harness = await _many_dead(dead)
        await sweep(harness.client)
        return bucket.counts

    few, many = asyncio.run(cost(FEW)), asyncio.run(cost(MANY))
    assert few == many
    # Each record that is removed: read it, look for what it holds, delete it and its entry.
    assert sum(many.values()) <= 4 * RUNNERS_RETIRED_MAX + 1_000


@pytest.mark.parametrize("call", [scan, partial(sweep, options=SweepOptions(dry_run=True)), all_troubles])
def test_the_runners_are_read_once_for_all_runs_that_are_looked_at(call: Callable[[Client], Awaitable[object]]) -> None:
    """Of a holder that is not among them it is found out once that no runner has its name."""

    async def cost(runs: int) -> int:
        bucket, harness = await _many_dead(100)
        for number in range(runs):
            stranger = RunnerId("never-registered" if number % 2 else "another")
            await harness.left_by(stranger, f"run-{number}", created(), claimed(stranger), started("a#1"))
        before = bucket.of_runners
        await call(harness.client)
        return bucket.of_runners - before

    # The look for orphans asks for the holder of each run, and for no other runner.
    assert asyncio.run(cost(30)) - asyncio.run(cost(6)) <= 2 * 24


@pytest.mark.parametrize("entries", [True, False], ids=["this release", "an earlier release"])
def test_sweeps_remove_all_records_but_the_newest(entries: bool) -> None:
    async def test() -> None:
        bucket, harness = await _many_dead(FEW, entries=entries)
        for _ in range(20):
            await sweep(harness.client)
            if len(await bucket.list(layout.RUNNERS)) == RUNNERS_GONE_KEPT:
                break
        found = [one.info.id for one in await harness.store.runners(gone=FEW)]
        assert found == ["alive", *(f"runner-{number:06}" for number in reversed(range(FEW - RUNNERS_GONE_KEPT, FEW)))]
        assert len(await bucket.list(layout.GONE)) == RUNNERS_GONE_KEPT
        assert (await harness.record("held")).holder == "alive"

    asyncio.run(test())


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_sweep_removes_the_lock_files_of_those_that_it_declared_dead(tmp_path: Path, kind: str) -> None:
    async def test() -> None:
        url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/folder"
        clock = SystemClock()
        store = await open_store(url, clock)
        assert store.lock_dir is not None
        try:
            harness = RecoveryHarness(store, ManualClock(), Deaths())
            harness.client.liveness = LockFiles(store.lock_dir)
            with runner_process(store.lock_dir, "alive") as alive, runner_process(store.lock_dir, "dead") as dead:
                for name, process in (("alive", alive), ("dead", dead)):
                    await store.register(record(name, process.pid).info)
                dead.kill()
                dead.wait()
                await sweep(harness.client, SweepOptions(dry_run=True))
                assert sorted(each.name for each in store.lock_dir.iterdir()) == ["alive.lock", "dead.lock"]
                found = await sweep(harness.client)
                assert found.dead_runners == 1
                assert [each.name for each in store.lock_dir.iterdir()] == ["alive.lock"]
                assert [each.info.id for each in await store.runners()] == ["alive"]
                alive.kill()
        finally:
            await store.close()

    asyncio.run(test())
