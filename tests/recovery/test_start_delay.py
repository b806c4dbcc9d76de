"""The first whole sweep comes after the delay that was asked for; dead processes are looked for before it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from buoy.core.ids import RunnerId
from buoy.core.limits import SWEEP_DELAY_S, SWEEP_SPREAD_MAX_S
from buoy.ports.records import SweepHealth
from buoy.recovery.sweep.sweeper import Sweeper
from tests.core.logbook import claimed

from .harness import RecoveryHarness, created, play
from .test_sweepers import health, looked_at, runner

LOOK_S = 0.05


async def looked(sweeper: Sweeper, more: int) -> None:
    """Waits for so many further looks for the dead."""
    before = sweeper.looks
    while sweeper.looks < before + more:
        await asyncio.sleep(LOOK_S)


@pytest.mark.parametrize(("delay_s", "spread_s"), [(120.0, SWEEP_SPREAD_MAX_S), (SWEEP_DELAY_S, SWEEP_SPREAD_MAX_S)])
def test_no_whole_sweep_comes_before_the_delay_and_one_comes_soon_after(
    tmp_path: Path, delay_s: float, spread_s: float
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "order-1", created(), claimed("r1"))
        me = RunnerId("sweeper-1")
        sweeper = Sweeper(harness.store, harness.deaths, me=me, client=harness.client, delay_s=delay_s)
        sweeper.start()
        await looked(sweeper, 1)
        harness.clock.advance(delay_s - 0.5)
        await looked(sweeper, 2)
        assert (sweeper.sweeps, (await harness.record("order-1")).holder) == (0, None)
        harness.clock.advance(0.5 + spread_s)
        while not sweeper.sweeps:
            await asyncio.sleep(LOOK_S)
        await sweeper.stop()
        told = sweeper.health()
        assert told is not None and (told.sweeps, told.delay_s) == (1, delay_s)

    play(tmp_path, test)


def test_a_sweeper_that_was_told_to_wait_is_not_overdue() -> None:
    def state(told: SweepHealth) -> bool:
        ((found,), _) = looked_at(runner("r1", told, up_s=3_000.0))
        return found.overdue

    assert state(health(at=None, delay_s=0.0))
    assert not state(health(at=None, delay_s=2_900.0))
