"""Requests over many runs: sweeps, and the looks of a person, at a store with many active and many finished runs.

The cases fail if a count depends on how many runs finished or how many runners ever lived, or exceeds its budget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from counting_bucket import Requests
from requests_plant import plant
from requests_world import World, sweeper_of

from buoy.core.limits import STALE_AFTER_S
from buoy.engine.client.client import Client
from buoy.operations.inspect.runs import NOT_ENDED, RunFilter, list_runs
from buoy.operations.inspect.troubles import all_troubles
from buoy.operations.maintenance.status import store_status
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from buoy.stores.objects.runners.retirement import RETIRED_BILLED_MAX

SHOWN = 20
# The budget: listings per 1,000 active runs and requests beside them; and requests beyond what is shown.
SWEEP_LISTS_PER_1000, SWEEP_MAX, LOOK_MAX = 5, 100, 50

Found = dict[str, Requests]


async def sweep_of_many(world: World) -> Found:
    """A whole sweep over parked runs, before and after many more finished and many runners went."""
    sizes = world.sizes
    runner = await world.worker("worker")
    await plant(world, "parked", 0, sizes.active)
    # None of them has moved for long.
    world.clock.advance(2 * STALE_AFTER_S)
    found: list[Requests] = []
    over = {"finished": 0, "gone": 0}
    for finished, gone in ((sizes.finished // 100, sizes.gone // 100), (sizes.finished, sizes.gone)):
        for kind, number in (("finished", finished), ("gone", gone)):
            await plant(world, kind, over[kind], number)
            over[kind] = number
        sweeper = sweeper_of(runner)
        await sweeper.whole()
        with world.counted() as span:
            await sweeper.whole()
        found.append(span.requests)
    few, many = found
    # A sweep removes some old records of runners while there are more than are kept.
    assert sum(many) - sum(few) <= RETIRED_BILLED_MAX + 3, f"a sweep depends on what is over: {few}, {many}"
    assert sum(many) <= SWEEP_LISTS_PER_1000 * sizes.active / 1_000 + SWEEP_MAX, many
    name = f"whole sweep, {sizes.active:,} parked"
    return {
        f"{name}, {sizes.finished // 100:,} finished, {sizes.gone // 100:,} runners gone": few,
        f"{name}, {sizes.finished:,} finished, {sizes.gone:,} runners gone": many,
    }


async def looks_at_many(world: World) -> Found:
    """`ps`, `why --all`, `status` and a dry sweep at a store where nearly all runs have finished."""
    sizes, found = world.sizes, Found()
    await world.store()
    await plant(world, "finished", 0, sizes.finished)
    await plant(world, "gone", 0, sizes.gone)
    await plant(world, "parked", 0, SHOWN)
    for name, look in LOOKS.items():
        client = await world.client()
        with world.counted() as span:
            await look(client)
        assert sum(span.requests) <= SHOWN + LOOK_MAX, (name, span.requests)
        found[f"{name}, {SHOWN} active of {sizes.finished:,} and {sizes.gone:,} runners gone"] = span.requests
    return found


async def _ps(client: Client) -> None:
    assert len((await list_runs(client, RunFilter(statuses=NOT_ENDED), limit=SHOWN)).facts) == SHOWN


async def _ps_all(client: Client) -> None:
    assert len((await list_runs(client, RunFilter(), limit=SHOWN)).facts) == SHOWN


async def _why_all(client: Client) -> None:
    assert not (await all_troubles(client)).any


async def _status(client: Client) -> None:
    assert (await store_status(client)).health == {"idle": SHOWN}


async def _dry_sweep(client: Client) -> None:
    assert (await sweep(client, SweepOptions(dry_run=True))).scanned == 0


LOOKS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "ps": _ps, "ps --all": _ps_all, "why --all": _why_all, "status": _status, "sweeper --dry-run": _dry_sweep,
}  # fmt: skip
