"""What is counted: each case is a story on an empty storage, and gives the requests of the operations in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from counting_bucket import Requests
from requests_flows import far, gates, waiting, walk, walk_far
from requests_many import looks_at_many, sweep_of_many
from requests_world import (
    World,
    claim,
    client_of,
    idle_worker,
    leave_gone,
    read_inboxes,
    run_of,
    sweeper_of,
    take_all,
)

from buoy.core.ids import RunId
from buoy.core.limits import SWEEP_ORPHANS_MAX
from buoy.engine.process.runner import Runner
from buoy.operations.maintenance.status import store_status

STEPS = 50
RUNS = 30
IDLE_WORKERS = 5
SENDERS, SENDERS_PUT_MAX = 100, 600
# Within so many seconds an idle worker, or a busy one, has what another process started.
IDLE_PICKUP_S, BUSY_PICKUP_S = 15.0, 2.0
# After a quiet minute; then two whole sweeps of each worker, and two looks of its other loops.
_QUIET_AFTER_S, _LONG_IDLE_S = 90.0, 600.0
# Right after a look of an idle worker for work and a look at its fleet, so that it hears as late as it ever does.
_OUT_OF_STEP_S = 600.5
# Longer than a writer trusts what it saw of a run.
_LONG_S = 31.0

Found = dict[str, Requests]


async def life_of_a_run(world: World) -> Found:
    """A run of quick steps, by itself: started by a client, claimed, taken, driven, ended."""
    gates.close(1, 2, 34, STEPS)
    client, runner = await world.client(), await world.runner("worker", walk)
    runner.intake.start = lambda *, takes_work: None
    with world.counted() as registered:
        await runner.start()
    with world.counted() as whole:
        with world.counted() as started:
            run = await client.start_as("run", walk, STEPS)
        with world.counted() as claimed:
            (task,) = await claim(runner)
        with world.counted() as taken:
            await runner.intake.take(task)
            await gates.began[1].wait()
            await world.settle()
        await _through(world, 1, 2)
        with world.counted() as steps:
            await _through(world, 2, 34)
        await _through(world, 34, STEPS)
        with world.counted() as ended:
            gates.open[STEPS].set()
            await world.settle()
    with world.counted() as record:
        await client.record(run.id)
    reader = await world.store()
    with world.counted() as first:
        await reader.events(RunId("run"), limit=1)
    with world.counted() as log:
        await reader.events(RunId("run"))
    return {
        "register a runner": registered.requests,
        "start by a client": started.requests,
        "claim of one due run": claimed.requests,
        "take it": taken.requests,
        "32 sequential steps": steps.requests,
        "the last step, and the end": ended.requests,
        f"run of {STEPS} quick steps, all in": whole.requests,
        "record of a run": record.requests,
        "events(limit=1) of that run": first.requests,
        "events() of that run": log.requests,
    }


async def _through(world: World, number: int, following: int) -> None:
    gates.open[number].set()
    await gates.began[following].wait()
    await world.settle()


async def driven_here(world: World) -> Found:
    """A run that its own process drives from the start, with one long step."""
    gates.close(1, 2, 3)
    runner = await world.worker("worker", walk)
    with world.counted() as started:
        await client_of(runner).start_as("run", walk, 3)
    await gates.began[1].wait()
    await _through(world, 1, 2)
    world.clock.advance(_LONG_S)
    with world.counted() as long:
        await _through(world, 2, 3)
    gates.open[3].set()
    await world.settle()
    return {"start driven in the same process": started.requests, "a step of more than 30 s": long.requests}


async def signals(world: World) -> Found:
    """A waiting run whose owner holds it gets a signal, and ends."""
    client, runner = await world.client(), await world.worker("worker", waiting)
    await client.start_as("run", waiting)
    await take_all(world, runner)
    with world.counted() as sent:
        await client.signal("run", "go")
    with world.counted() as read:
        await read_inboxes(world, runner)
    assert not runner.executions, "the run has ended"
    with world.counted() as looked:
        assert not await claim(runner)
    return {
        "signal sent": sent.requests,
        "owner reads it, and the run ends": read.requests,
        "the next look for work": looked.requests,
    }


async def remote_steps(world: World) -> Found:
    """What one more step with a queue costs: each is a child run, which another worker claims and drives."""
    owner = await world.worker("owner", walk_far)
    remote = await world.worker("remote", far.remote, queues=("far",))
    spent: list[Requests] = []
    for steps in (1, 2, 3):
        with world.counted() as span:
            await client_of(owner).start_as(f"run-of-{steps}", walk_far, steps)
            await world.settle()
            for _ in range(steps):
                await take_all(world, remote)
                await read_inboxes(world, owner)
        assert not owner.executions, "the run has ended"
        spent.append(span.requests)
    return {"a remote step": spent[2] - spent[1]}


async def takeover(world: World) -> Found:
    """What the takeover of one run of a dead worker costs, of several that it held in the middle of a step."""
    gates.close(2)
    dead, heir = await world.worker("dead", walk), await world.worker("heir", walk)
    for number in range(RUNS):
        await client_of(dead).start_as(run_of(number), walk, 3)
    await world.settle()
    with world.counted() as span:
        await heir.store.declare_dead(dead.id, "proven dead", cause="taken_over", evidence={"proof": "killed"})
        await take_all(world, heir)
    assert len(heir.executions) == RUNS
    gates.open[2].set()
    await world.settle()
    return {f"takeover of {RUNS} runs of a dead worker": span.requests}


async def senders(world: World) -> Found:
    """Many processes send to one run at the same moment; then its owner has read all of them."""
    runner = await world.worker("worker", waiting)
    await client_of(runner).start_as("run", waiting)
    await world.settle()
    clients = [await world.client() for _ in range(SENDERS)]
    with world.counted() as span:
        await asyncio.gather(*(client.signal("run", "other", dedupe=f"{n}") for n, client in enumerate(clients)))
        await world.settle()
    assert span.requests.put <= SENDERS_PUT_MAX, span.requests
    await read_inboxes(world, runner)
    await client_of(runner).signal("run", "go")
    await read_inboxes(world, runner)
    assert not runner.executions, "the run has ended"
    with world.meter.outside.job():
        assert not await world.bucket.list("wake/"), "no stale entries are left"
    return {f"{SENDERS} senders to one run at once": span.requests}


async def _plant_waiting(world: World, *, parked: bool) -> Runner:
    runner = await world.worker("worker", waiting)
    for number in range(RUNS):
        await client_of(runner).start_as(run_of(number), waiting)
    await world.settle()
    if parked:
        runner.give_back_resting()
        await world.settle()
        assert not runner.executions
    return runner


async def lists(world: World) -> Found:
    """Looks at a store with as many ended runs as waiting ones."""
    gates.close()
    runner = await _plant_waiting(world, parked=False)
    runner.registry.add(walk)
    for number in range(RUNS):
        await client_of(runner).start_as(run_of(RUNS + number), walk, 1)
    await world.settle()
    client = await world.client()
    with world.counted() as page:
        assert len((await client.runs(limit=100)).runs) == 2 * RUNS
    with world.counted() as counts:
        assert sum((await client.store.counts()).values()) == 2 * RUNS
    with world.counted() as status:
        assert sum((await store_status(client)).runs.values()) == 2 * RUNS
    cursor = (await client.store.moved())[1]
    with world.counted() as moved:
        await client.store.moved(cursor)
    return {
        f"list page of {2 * RUNS} runs": page.requests,
        f"counts, {RUNS} ended, {RUNS} waiting": counts.requests,
        f"buoy status, {RUNS} ended, {RUNS} waiting": status.requests,
        "a look at what moved": moved.requests,
    }


async def idle(world: World) -> Found:
    """One worker with all of its loops, and nothing to do; then five of them. Two whole sweeps of each are counted."""
    found: Found = {}
    async with AsyncExitStack() as workers:
        await workers.enter_async_context(idle_worker(world, "worker-0"))
        await asyncio.sleep(_QUIET_AFTER_S)
        with world.counted() as alone:
            await asyncio.sleep(_LONG_IDLE_S)
        for number in range(1, IDLE_WORKERS):
            await workers.enter_async_context(idle_worker(world, f"worker-{number}"))
        await asyncio.sleep(_QUIET_AFTER_S)
        with world.counted() as among:
            await asyncio.sleep(_LONG_IDLE_S)
        found["idle worker, ten minutes"] = alone.requests
        found[f"{IDLE_WORKERS} idle workers, ten minutes"] = among.requests
    return found


async def pickup(world: World) -> Found:
    """How soon a worker takes what another process starts: after a long idle time, and while it is busy."""
    found: Found = {}
    async with idle_worker(world, "worker", waiting) as runner:
        client = await world.client()
        for kind, idle_s, soon_s in (("idle", _OUT_OF_STEP_S, IDLE_PICKUP_S), ("busy", 1.5, BUSY_PICKUP_S)):
            await asyncio.sleep(idle_s)
            started_at = world.clock.monotonic()
            with world.counted() as span:
                await client.start_as(f"run-{kind}", waiting)
                while RunId(f"run-{kind}") not in runner.executions:
                    await asyncio.sleep(0.05)
            took_s = world.clock.monotonic() - started_at
            assert took_s <= soon_s, f"a worker that was {kind} took it after {took_s:.1f} s"
            found[f"start elsewhere, until a worker that was {kind} has it"] = span.requests
    return found


async def sweeps_of_nothing(world: World) -> Found:
    """Whole sweeps of a store without runs, after more and more runners have gone."""
    runner, found, gone = await world.worker("worker"), Found(), 0
    for number in (0, 20, 300):
        await leave_gone(world, gone, number)
        gone = number
        with world.counted() as span:
            await sweeper_of(runner).whole()
        found[f"whole sweep, {number} runners gone"] = span.requests
    return found


def sweeps_of_waiting(*, parked: bool) -> Callable[[World], Awaitable[Found]]:
    """A whole sweep and a look for orphans, over runs that wait for a signal."""

    async def case(world: World) -> Found:
        runner = await _plant_waiting(world, parked=parked)
        kind = "parked" if parked else "held"
        with world.counted() as whole:
            await sweeper_of(runner).whole()
        with world.counted() as orphans:
            await runner.store.orphans(SWEEP_ORPHANS_MAX)
        return {
            f"whole sweep, {RUNS} waiting runs {kind}": whole.requests,
            f"look for orphans, {RUNS} {kind}": orphans.requests,
        }

    return case


CASES: dict[str, Callable[[World], Awaitable[Found]]] = {
    "life": life_of_a_run,
    "driven": driven_here,
    "signals": signals,
    "remote": remote_steps,
    "takeover": takeover,
    "senders": senders,
    "lists": lists,
    "idle": idle,
    "pickup": pickup,
    "sweep": sweeps_of_nothing,
    "sweep-held": sweeps_of_waiting(parked=False),
    "sweep-parked": sweeps_of_waiting(parked=True),
    "sweep-many": sweep_of_many,
    "looks": looks_at_many,
}
