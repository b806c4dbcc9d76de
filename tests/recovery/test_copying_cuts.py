"""A copy of a whole store whose process is killed at any of its writes: the same copy, repeated, completes it.

Both stores are buckets in memory, so that each single request is a place to be killed at. A family with an unread
message moves, and a run that went back to an earlier step. So do a spec, a schedule and a tombstone.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.errors import WrongState
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.operations.control.schedules import Times, add_schedule
from buoy.operations.maintenance.copy_records import copy_schedules, copy_tombstones
from buoy.operations.maintenance.copy_runs import copy_all
from buoy.operations.maintenance.purge import Purge, purge
from buoy.stores.objects.buckets.folder import FolderBucket
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.testing.local_host import KnownDeaths
from tests.recovery.test_copying import CRATE, crate, family_at, parcel, url_of
from tests.stores.object_world import Crash, Fault

NAMES = ("parcel-1", str(CRATE), "went-back", "from-spec")
PURGED = RunId("purged")
SPEC = "name: nightly\nsteps:\n  - id: one\n    modules:\n      - {id: a, ask: {title: 'Publish?', options: ['yes']}}\n"
# Every third write is a place to be killed at; `BUOY_CUTS_ALL=1`: each of them.
STRIDE = 1 if "BUOY_CUTS_ALL" in os.environ else 3

Objects = dict[str, bytes]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """The objects of a store that real processes used."""
    folder = tmp_path_factory.mktemp("planted")

    async def play() -> Objects:
        await plant(url_of(folder, "source"), folder)
        return await objects_of(folder / "source")

    return asyncio.run(play())


async def plant(url: str, folder: Path) -> None:
    """What a copy moves, made by real runs."""
    (folder / "nightly.yaml").write_text(SPEC)
    async with buoy.open(url, workflows=[parcel, crate]) as app, asyncio.timeout(120):
        for name in (PURGED, "went-back"):
            run = await app.start_as(name, crate, "x")
            await run.signal("lid")
            await run.result()
            if name == PURGED:
                await purge(app, Purge(older_than_s=0.0, workflow="crate"))
        await app.jump("went-back", "pack")
        await app.signal("went-back", "lid")
        await run.result()
    await family_at(url)
    async with buoy.connect(url) as client:
        await client.start_as("from-spec", buoy.load_spec(folder / "nightly.yaml"))
        await add_schedule(client, "hourly", crate, msgspec.Raw(b'{"item":"x"}'), Times(every_s=3600))


async def objects_of(folder: Path) -> Objects:
    bucket = await FolderBucket.open(folder)
    found = {}
    for key in await bucket.list(""):
        body = await bucket.get(key)
        assert body is not None
        found[key] = body[0]
    return found


async def _client(data: MemoryData, name: str, fault: Fault | None = None) -> Client:
    clock = SystemClock()
    store = await ObjectStore.on(MemoryBucket(data, fault, name), clock=clock)
    return Client(store, Registry(), clock=clock, ids=SystemIds(), liveness=KnownDeaths(), actor="copier")


async def _copied(here: Client, there: Client) -> None:
    await copy_schedules(here, there)
    await copy_tombstones(here, there)
    async for _ in copy_all(here, there):
        pass


def _data(objects: Objects) -> MemoryData:
    data = MemoryData()
    for key, body in objects.items():
        data.put(key, body)
    return data


@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_copy_that_is_killed_at_any_write_is_completed_by_the_next(planted: Objects, phase: str) -> None:
    tried = 0
    for at in count(1, STRIDE):
        if not asyncio.run(_cut(planted, Fault(at, phase, dies=True))):
            break
        tried += 1
    assert tried * STRIDE >= 40, "the copy makes more writes than that"


async def _cut(planted: Objects, fault: Fault) -> bool:
    source, target = _data(planted), MemoryData()
    here, there = await _client(source, "here", fault), await _client(target, "there", fault)
    fault.armed = True
    with suppress(Crash):
        await _copied(here, there)
    here, there = await _client(source, "here"), await _client(target, "there")
    await _copied(here, there)
    await all_moved(here, there)
    return fault.struck


async def all_moved(here: Client, there: Client) -> None:
    for name in NAMES:
        left = await here.store.events(RunId(name))
        found = await there.store.events(RunId(name))
        assert found[: len(left) - 1] == left[:-1]
        before, after = (await here.record(name)).document, (await there.record(name)).document
        assert (before.status, before.moved_to) == ("moved", there.store.name)
        assert after.pause is None, f"{name} is on hold: {after.pause}"
        assert (after.parent, after.branch) == (before.parent, before.branch)
        sent = {each.dedupe for each in await here.store.inbox(RunId(name))}
        assert sent <= {each.dedupe for each in await there.store.inbox(RunId(name))}
        if not after.ended:
            with pytest.raises(WrongState, match=re.escape(there.store.name)):
                await here.signal(name, "lid")
    assert (await there.record("went-back")).document.branch == 1
    version = (await there.record("from-spec")).document.version
    assert await there.store.definition(version) is not None
    assert [(each.name, each.active) for each in await there.store.schedules.schedules()] == [("hourly", True)]
    assert [each.active for each in await here.store.schedules.schedules()] == [False]
    assert await there.store.archive.tombstone(PURGED) == await here.store.archive.tombstone(PURGED) is not None


def test_two_copies_of_a_whole_store_at_once_make_one(planted: Objects) -> None:
    async def play() -> None:
        source, target = _data(planted), MemoryData()
        pairs = [(await _client(source, "here"), await _client(target, "there")) for _ in range(2)]
        found = await asyncio.gather(*(_copied(*pair) for pair in pairs), return_exceptions=True)
        assert all(each is None or isinstance(each, WrongState) for each in found), found
        here, there = await _client(source, "here"), await _client(target, "there")
        await _copied(here, there)
        await all_moved(here, there)

    asyncio.run(play())
