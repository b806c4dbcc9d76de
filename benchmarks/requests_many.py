"""Requests over many runs: sweeps, and the looks of a person, at a store with many active and many finished runs.

Runs are planted by commits of their own, without an engine. The cases fail if a count depends on how many runs
finished or how many runners ever lived.
"""

from __future__ import annotations

from itertools import count

import msgspec
from counting_bucket import Requests
from requests_world import World, leave_gone, sweeper_of

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.operations.inspect.runs import NOT_ENDED, RunFilter, list_runs
from buoy.operations.inspect.troubles import all_troubles
from buoy.operations.status import store_status
from buoy.ports.records import Ended, Released
from buoy.ports.store import Store
from buoy.testing.contracts.harness import Author

ACTIVE = 1_000
FINISHED = 12_000
GONE = 300
SHOWN = 20
# The budget: listings per 1,000 active runs and requests beside them; and requests beyond what is shown.
SWEEP_LISTS_PER_1000, SWEEP_MAX, LOOK_MAX = 5, 100, 50

Found = dict[str, Requests]


async def sweep_of_many(world: World) -> Found:
    """A whole sweep over parked runs, before and after many more finished and many runners went."""
    runner, store = await world.worker("worker"), await world.store()
    await plant(world, store, "parked", ACTIVE)
    found: list[Requests] = []
    for finished, gone in ((0, 0), (300, GONE)):
        await plant(world, store, "finished", finished)
        await leave_gone(world, 0, gone)
        sweeper = sweeper_of(runner)
        await sweeper.whole()
        with world.counted() as span:
            await sweeper.whole()
        found.append(span.requests)
    few, many = found
    assert few == many, f"a sweep depends on what is over: {few}, {many}"
    assert sum(many) <= SWEEP_LISTS_PER_1000 * ACTIVE / 1_000 + SWEEP_MAX, many
    return {f"whole sweep, {ACTIVE:,} parked, 300 finished, {GONE} runners gone": many}


async def looks_at_many(world: World) -> Found:
    """`ps`, `why --all` and `status` at a store where nearly all runs have finished."""
    store = await world.store()
    await plant(world, store, "finished", FINISHED)
    await leave_gone(world, 0, GONE)
    await plant(world, store, "parked", SHOWN)
    client, found = await world.client(), Found()
    with world.counted() as ps:
        assert len((await list_runs(client, RunFilter(statuses=NOT_ENDED), limit=SHOWN)).facts) == SHOWN
    found[f"ps, {SHOWN} runs shown"] = ps.requests
    with world.counted() as everything:
        assert len((await list_runs(client, RunFilter(), limit=SHOWN)).facts) == SHOWN
    found[f"ps --all, {SHOWN} runs shown"] = everything.requests
    with world.counted() as why:
        await all_troubles(client)
    found[f"why --all, {SHOWN} active runs"] = why.requests
    with world.counted() as status:
        await store_status(client)
    found[f"status, {SHOWN} active runs"] = status.requests
    for look in (ps, everything, status):
        assert sum(look.requests) <= SHOWN + LOOK_MAX, look.requests
    return {f"{name}, of {FINISHED:,} and {GONE} runners gone": requests for name, requests in found.items()}


async def plant(world: World, store: Store, kind: str, number: int) -> None:
    """So many runs that wait for a signal, or that are over."""
    nonces = count(1)
    for each in range(number):
        author = Author(RunId(f"{kind}-{each:06}"), world.clock, nonces, {})
        now = world.clock.now()
        if kind == "parked":
            waits = e.SignalWaited(leaf=LeafId("go#1"), name="go")
            first = author.first(Released(due_at=None, now=now))
            author.accept(first)
            await store.commit([first])
            await author.append(store, waits, task=Released(due_at=None, now=now))
        else:
            await author.create(store, Released(due_at=None, now=now))
            await author.append(store, e.WorkflowCompleted(result=msgspec.Raw(b"1")), task=Ended())
