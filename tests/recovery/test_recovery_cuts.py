"""A recovery that is cut off at any call to the store is itself recovered, and is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.ports.records import Released
from buoy.ports.store import Store
from buoy.recovery.recover import recover_run
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from tests.core.logbook import answered, asked, claimed, completed, started

from .cuts import CutStore, Killed
from .harness import QUICK_KINDS, Deaths, RecoveryHarness, created, no_twice, opened
from .losses import lost_end

UNDER_WAY = (claimed("r1"), started("a#1"), completed("a#1"), started("b#1"))
CUTS = ("dies before", "dies after", "fails before", "fails after")
# More calls than any recovery here makes; a recovery that makes more is looked at.
CALLS_MAX = 120


class Case(NamedTuple):
    """Something that was left behind, and what its log must hold when all is well again, exactly once."""

    plant: Callable[[RecoveryHarness], Awaitable[None]]
    once: tuple[str, ...]
    due: bool = True


async def _answered(harness: RecoveryHarness) -> None:
    lie = {"status": Status.AWAITING_INPUT}
    await harness.plant("run-1", created(), claimed("r1"), asked("ask#1"), answered("ask#1", message=None), lie=lie)


def _dead(policy: str) -> Callable[[RecoveryHarness], Awaitable[None]]:
    async def plant(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "run-1", created(policy), *UNDER_WAY)

    return plant


async def _overdue(harness: RecoveryHarness) -> None:
    timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=harness.clock.now() - 100.0)
    await harness.plant("run-1", created(), claimed("r1"), timer)


async def _lost_end(harness: RecoveryHarness) -> None:
    await lost_end(harness, task=Released(due_at=harness.clock.now(), now=harness.clock.now()))


CASES = {
    "an answered question": Case(_answered, ("branch_created", "workflow_recovered")),
    "to be restarted": Case(_dead("restart"), ("branch_created", "workflow_recovered")),
    "to be resumed": Case(_dead("resume"), ()),
    "to be failed": Case(_dead("fail"), ("workflow_failed",), due=False),
    "to be held": Case(_dead("hold"), ("paused",), due=False),
    "a lost timer": Case(_overdue, ()),
    "a log that lost its end": Case(_lost_end, ("workflow_recovered",)),
}


@pytest.mark.parametrize("kind", QUICK_KINDS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", CUTS)
def test_a_recovery_cut_off_anywhere_is_done_once(tmp_path: Path, kind: str, name: str, how: str) -> None:
    case = CASES[name]

    async def attempt(place: Path, at: int) -> bool:
        """Whether the cut was reached."""
        async with opened(place, kind) as harness:
            await case.plant(harness)
            cut = CutStore(harness.store, at, how)
            await _try(recover_run(harness.client_of(cast(Store, cut), "sweeper-0"), "run-1"))
            await recover_run(harness.client, "run-1")
            last = await recover_run(harness.client, "run-1")
            assert not last.needed, f"call {at} left it in need: {last.reason}"
            log = await harness.log("run-1")
            types = [event.type for event in log]
            for kind_of_event in case.once:
                assert types.count(kind_of_event) == 1, f"call {at}: {types}"
            assert no_twice(log)
            assert await harness.due() == (["run-1"] if case.due else []), f"call {at}: {types}"
            return cut.struck

    for at in range(1, CALLS_MAX):
        (tmp_path / str(at)).mkdir()
        if not asyncio.run(attempt(tmp_path / str(at), at)):
            assert at > 3, "the recovery made no calls"
            return
    raise AssertionError(f"more than {CALLS_MAX} calls")


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUICK_KINDS)
@pytest.mark.parametrize("how", CUTS)
def test_a_sweep_cut_off_anywhere_is_made_good_by_the_next(tmp_path: Path, kind: str, how: str) -> None:
    async def attempt(place: Path, at: int) -> bool:
        async with opened(place, kind) as harness:
            dead = await harness.runner("r1", dead=True)
            await harness.left_by(dead, "again-1", created("restart"), *UNDER_WAY)
            await harness.left_by(dead, "again-2", created("fail"), *UNDER_WAY)
            for number in range(3):
                await harness.left_by(dead, f"on-{number}", created(), *UNDER_WAY)
            await _overdue(harness)
            options = SweepOptions(stale_after_s=0.0)
            cut = CutStore(harness.store, at, how)
            await _try(sweep(harness.client_of(cast(Store, cut), "sweeper-0"), options))
            await sweep(harness.client, options)
            last = await sweep(harness.client, options)
            assert last.moved + last.failed + last.held + last.unknown == 0, f"call {at}: {last}"
            assert await harness.due() == ["again-1", "on-0", "on-1", "on-2", "run-1"], f"call {at}"
            for run, kind_of_event in (("again-1", "branch_created"), ("again-2", "workflow_failed")):
                assert (await harness.types(run)).count(kind_of_event) == 1, f"call {at}"
            return cut.struck

    for at in range(1, CALLS_MAX):
        (tmp_path / str(at)).mkdir()
        if not asyncio.run(attempt(tmp_path / str(at), at)):
            assert at > 10, "the sweep made no calls"
            return
    raise AssertionError(f"more than {CALLS_MAX} calls")


async def _try(work: Awaitable[object]) -> None:
    try:
        await work
    except (Killed, Exception) as error:
        assert type(error).__name__ in ("Killed", "Unavailable"), error


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_process_that_dies_between_two_objects_leaves_a_recovery_that_others_finish(name: str, phase: str) -> None:
    """One commit is several objects where the store has no transactions."""
    case = CASES[name]

    async def attempt(at: int) -> bool:
        data, clock, deaths = MemoryData(), ManualClock(), Deaths()
        harness = RecoveryHarness(
            cast(Store, await ObjectStore.on(MemoryBucket(data), clock=clock, single_host=True)), clock, deaths
        )
        await case.plant(harness)
        calls = 0

        async def die(operation: str, key: str, when: str) -> None:
            nonlocal calls
            calls += when == phase
            if calls == at and when == phase:
                raise Killed(f"{phase} {operation} {key}")

        mortal = cast(Store, ObjectStore(MemoryBucket(data, die), clock, single_host=True))
        await _try(recover_run(harness.client_of(mortal, "sweeper-0"), "run-1"))
        # Another process, which remembers nothing.
        fresh = RecoveryHarness(cast(Store, ObjectStore(MemoryBucket(data), clock, single_host=True)), clock, deaths)
        await sweep(fresh.client, SweepOptions(stale_after_s=0.0))
        assert not (await recover_run(fresh.client, "run-1")).needed, f"call {at}"
        log = await fresh.log("run-1")
        types = [event.type for event in log]
        assert all(types.count(each) == 1 for each in case.once) and no_twice(log), f"call {at}: {types}"
        assert await fresh.due() == (["run-1"] if case.due else []), f"call {at}: {types}"
        return calls >= at

    for at in range(1, CALLS_MAX * 5):
        if not asyncio.run(attempt(at)):
            assert at > 10, "the recovery made no calls"
            return
    raise AssertionError("too many calls")
