"""Plants many runs and runners at once: the objects of one are made by a store, those of the others are copies of it.

Invariant: what is planted is what a store would have written, but for the names. All names have one length.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Protocol, runtime_checkable

import msgspec
from requests_world import World

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.engine.authoring.definitions import Registry
from buoy.ports.records import Ended, Held, Released
from buoy.ports.store import Store
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.harness import Author
from buoy.testing.local_host import runner_info


@runtime_checkable
class Plantable(Protocol):
    """A bucket with a way to get many objects at once."""

    async def plant(self, made: Mapping[str, bytes]) -> None: ...


def name_of(kind: str, number: int) -> str:
    return f"{kind}-{number:06}"


async def plant(world: World, kind: str, first: int, end: int) -> None:
    """Runs that wait for a signal (`parked`), that are over (`finished`), or runners that are gone (`gone`)."""
    pattern, objects = name_of(kind, 0), await _objects(world, kind)
    made = {
        key.replace(pattern, name): body.replace(pattern.encode(), name.encode())
        for name in (name_of(kind, number) for number in range(first, end))
        for key, body in objects.items()
    }
    with world.meter.outside.job():
        await _put_all(world.bucket, made)


async def _objects(world: World, kind: str) -> dict[str, bytes]:
    """What a store writes of the first of them."""
    bucket = MemoryBucket()
    store = await ObjectStore.on(bucket, clock=world.clock)
    if kind == "gone":
        runner = RunnerId(name_of(kind, 0))
        await store.register(runner_info(runner, Registry(), ("default",)))
        await store.declare_dead(runner, "stopped", cause="interrupted", evidence={"runner": runner})
    else:
        await _run(world, store, kind)
    return {key: body for key, (body, _) in bucket.data.objects.items() if key not in (layout.MARKER, layout.POKE)}


async def _run(world: World, store: Store, kind: str) -> None:
    author, now = Author(RunId(name_of(kind, 0)), world.clock, count(1), {}), world.clock.now()
    owner = RunnerId("gone-000000")
    await author.create(store, Held(owner))
    taken = e.Claimed(runner=owner, cause="created")
    if kind == "parked":
        waits = e.SignalWaited(leaf=LeafId("go#1"), name="go")
        await author.append(store, taken, waits, task=Released(due_at=None, now=now))
    else:
        await author.append(store, taken, e.WorkflowCompleted(result=msgspec.Raw(b"1")), task=Ended())


async def _put_all(bucket: Bucket, made: dict[str, bytes]) -> None:
    if isinstance(bucket, Plantable):
        await bucket.plant(made)
        return
    if not isinstance(bucket, MemoryBucket):
        await each(made.items(), lambda one: bucket.put(*one))
        return
    data = bucket.data
    for key, body in made.items():
        data.writes += 1
        data.objects[key] = (body, f"{data.writes}")
    data.keys = sorted(data.objects)
