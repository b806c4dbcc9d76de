"""The contract of a store, kept by the object layout in a folder and in memory; and what is a folder's own."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import ClassVar

import pytest

from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import RunQuery
from buoy.ports.store import Store
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.folder_store import FolderStore
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts import StoreContract, TimedStoreContract
from buoy.testing.contracts.harness import register


class TestFolderStore(StoreContract):
    async def open(self, place: Path, clock: Clock) -> Store:
        # Without syncs: what a power cut does is not tested here, and they cost a minute.
        return await FolderStore.open(place / "store", clock=clock, durable=False)


class TestMemoryStore(StoreContract):
    data: ClassVar[dict[Path, MemoryData]] = {}

    async def open(self, place: Path, clock: Clock) -> Store:
        return await ObjectStore.on(MemoryBucket(self.data.setdefault(place, MemoryData())), clock=clock)


class TestFolderStoreWithAClock(TimedStoreContract):
    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        return await FolderStore.open(place / "store", clock=clock, durable=False, own_clock=own_clock)


class TestMemoryStoreWithAClock(TimedStoreContract):
    data: ClassVar[dict[Path, MemoryData]] = {}

    async def open_timed(self, place: Path, clock: Clock, own_clock: Clock) -> Store:
        bucket = MemoryBucket(self.data.setdefault(place, MemoryData()))
        return await ObjectStore.on(bucket, clock=clock, own_clock=own_clock)


def test_a_folder_store_says_where_it_is_and_where_locks_belong(tmp_path: Path) -> None:
    async def play() -> None:
        store = await FolderStore.open(tmp_path / "store", clock=ManualClock())
        assert store.single_host
        assert store.name == f"file://{tmp_path}/store"
        assert store.lock_dir.is_dir() and stat.S_IMODE(store.lock_dir.stat().st_mode) == 0o700
        await store.close()
        await store.close()
        with pytest.raises(Unavailable):
            await store.find_runs(RunQuery())
        # Its own files do not make it a folder of something else.
        again = await FolderStore.open(tmp_path / "store", clock=ManualClock())
        assert (await again.find_runs(RunQuery())).runs == ()
        await again.close()

    asyncio.run(play())


def test_two_processes_may_open_a_new_folder_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        opened = await asyncio.gather(
            *(FolderStore.open(tmp_path / "store", clock=ManualClock(), durable=False) for _ in range(8))
        )
        for store in opened:
            await store.close()

    asyncio.run(play())


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "My Photos").mkdir()
    (tmp_path / "My Photos" / "a.jpg").write_bytes(b"...")
    with pytest.raises(StoreUnusable, match="no Buoy store"):
        asyncio.run(FolderStore.open(tmp_path, clock=ManualClock()))


def test_a_change_by_another_process_is_noticed(tmp_path: Path) -> None:
    async def play() -> None:
        store, other = [await FolderStore.open(tmp_path / "store", clock=ManualClock()) for _ in range(2)]
        assert not await store.wait_for_change(0.0)
        waiting = asyncio.create_task(store.wait_for_change(30.0))
        await asyncio.sleep(0)
        await register(other, "r1")
        assert await waiting
        await store.close()
        await other.close()

    asyncio.run(play())
