"""The marker of the object store: an earlier Buoy and this one never work on one store."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from buoy.core.ids import RunnerId
from buoy.errors import StoreLost, StoreUnusable
from buoy.ports.records import Beat, Released, RunQuery
from buoy.stores.objects import layout, marker
from buoy.stores.objects.folder_store import FolderStore
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import register

from .object_world import World


async def _outdated(world: World, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The store of a runner of an earlier Buoy."""
    monkeypatch.setattr(marker, "FORMAT", 1)
    store = await world.fresh()
    await register(store, "earlier")
    monkeypatch.setattr(marker, "FORMAT", 2)
    return store


def _format_of(world: World) -> bytes:
    return world.data.objects[layout.MARKER][0]


def test_an_earlier_buoy_is_refused_once_this_one_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        world = World(None)
        await (await _outdated(world, monkeypatch)).declare_dead(
            RunnerId("earlier"), "stopped", cause="interrupted", evidence={"runner": "earlier"}
        )
        store, other = await world.fresh(), await world.fresh()
        assert (await store.find_runs(RunQuery())).runs == ()
        assert _format_of(world) == b'{"format":1}', "reading changes nothing"
        await register(store, "r1")
        await register(other, "r2")
        assert _format_of(world) == b'{"format":2}'
        monkeypatch.setattr(marker, "FORMAT", 1)
        with pytest.raises(StoreUnusable, match="a newer Buoy wrote it"):
            await world.fresh()

    asyncio.run(play())


def test_nothing_is_written_to_a_store_on_which_a_runner_of_an_earlier_buoy_beats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the two leaves out entries that the other one looks for: runs would be missing in lists."""

    async def play() -> None:
        world = World(None)
        earlier = await _outdated(world, monkeypatch)
        numbers = count(1)

        async def beats() -> None:
            await earlier.beat(RunnerId("earlier"), Beat(number=next(numbers)))

        monkeypatch.setattr(marker, "_pause", beats)
        refused = partial(pytest.raises, StoreUnusable, match="workers of an earlier Buoy: earlier; stop them")
        with refused():
            await register(await world.fresh(), "r1")
        with refused():
            await world.author.create(await world.fresh(), Released(due_at=0.0, now=0.0))
        assert _format_of(world) == b'{"format":1}'

    asyncio.run(play())


def test_a_runner_of_an_earlier_buoy_that_was_killed_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        world = World(None)
        await _outdated(world, monkeypatch)
        first, second = await world.fresh(), await world.fresh()

        async def the_first_is_quicker() -> None:
            monkeypatch.setattr(marker, "_pause", nothing_beats)
            await register(first, "r1")

        async def nothing_beats() -> None: ...

        monkeypatch.setattr(marker, "_pause", the_first_is_quicker)
        await register(second, "r2")
        assert _format_of(world) == b'{"format":2}'
        assert {each.info.id for each in await second.runners()} == {"earlier", "r1", "r2"}

    asyncio.run(play())


def test_a_folder_of_an_earlier_buoy_is_marked_and_watched_from_the_first_write_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async def opened() -> FolderStore:
            return await FolderStore.open(tmp_path / "store", clock=ManualClock(), durable=False)

        made, mark = marker.FORMAT, tmp_path / "store" / layout.MARKER
        monkeypatch.setattr(marker, "FORMAT", made - 1)
        await (await opened()).close()
        monkeypatch.setattr(marker, "FORMAT", made)
        store, other = await opened(), await opened()
        assert (await store.find_runs(RunQuery())).runs == ()
        assert mark.read_bytes() == b'{"format":%d}' % (made - 1), "reading changes nothing"
        await register(store, "r1")
        await register(other, "r2")
        assert mark.read_bytes() == b'{"format":%d}' % made
        assert {each.info.id for each in await store.runners()} == {"r1", "r2"}
        mark.unlink()
        for each in (store, other):
            with pytest.raises(StoreLost):
                await each.find_runs(RunQuery())
            await each.close()

    asyncio.run(play())
