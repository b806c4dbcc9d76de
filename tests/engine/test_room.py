"""The room of a job runner: places, those that wait for one, and short jobs that share them."""

from __future__ import annotations

import asyncio

import pytest

from buoy.core.batch.resources import Capacity
from buoy.core.limits import JOBS_QUEUED_MAX
from buoy.core.spec.model import Resources
from buoy.engine.services.room import Room
from buoy.testing.clock import ManualClock

ONE = Resources()
GIB = 2**30


def _room(cpus: int = 2) -> Room:
    return Room(Capacity(cpus, 8 * GIB), ManualClock())


def _short(room: Room, resources: Resources = ONE) -> None:
    room.short.measure(resources, 0.001)


def test_only_jobs_known_to_be_short_queue_for_a_place() -> None:
    room = _room()
    assert [room.reserve(f"j{k}", ONE, shared=True) for k in range(3)] == [True, True, False]
    _short(room)
    assert room.reserve("j3", ONE, shared=True)
    assert not room.reserve("j4", ONE)
    room.short.measure(ONE, 100.0)
    assert not room.reserve("j5", ONE, shared=True)


def test_a_queue_is_bounded_by_the_places_that_serve_it() -> None:
    room = _room()
    _short(room)
    assert sum(room.reserve(f"j{k}", ONE, shared=True) for k in range(1000)) == 2 + 2 * JOBS_QUEUED_MAX
    assert room.running == 2


def test_a_shared_place_passes_on_and_is_free_after_the_last() -> None:
    room = _room(cpus=1)
    _short(room)
    keys = [f"j{k}" for k in range(4)]
    assert all(room.reserve(key, ONE, shared=True) for key in keys)
    for key in keys[:-1]:
        room.release(key)
        assert not room.reserve("other", Resources(memory_bytes=GIB))
    room.release(keys[-1])
    assert room.running == 0
    assert room.reserve("other", Resources(memory_bytes=GIB))


def test_jobs_end_in_any_order_and_every_place_comes_back() -> None:
    room = _room(cpus=3)
    _short(room)
    keys = [f"j{k}" for k in range(20)]
    assert all(room.reserve(key, ONE, shared=True) for key in keys)
    for key in [*keys[::-2], *keys[::2]]:
        room.release(key)
        room.release(key)
    assert room.running == 0
    assert room.short.places(ONE) == 0
    assert all(room.reserve(f"k{k}", ONE) for k in range(3))
    assert not room.reserve("k3", ONE)


def test_a_queue_refuses_while_a_further_attempt_waits_for_room() -> None:
    async def main() -> None:
        room = _room(cpus=1)
        _short(room)
        assert room.reserve("j1", ONE, shared=True)
        waits = asyncio.ensure_future(_hold(room, "again", ONE))
        await asyncio.sleep(0)
        assert not room.reserve("j2", ONE, shared=True)
        room.release("j1")
        await waits
        assert room.running == 0

    asyncio.run(main())


def test_one_end_serves_all_that_wait_and_fit() -> None:
    async def main() -> None:
        room = _room(cpus=4)
        assert room.reserve("big", Resources(cpus=4))
        begun: list[str] = []
        waits = [asyncio.ensure_future(_hold(room, f"w{k}", ONE, begun)) for k in range(4)]
        await asyncio.sleep(0)
        room.release("big")
        assert room.running == 4
        await asyncio.gather(*waits)
        assert begun == ["w0", "w1", "w2", "w3"]
        assert room.running == 0

    asyncio.run(main())


def test_a_place_that_came_with_a_cancellation_goes_to_the_next() -> None:
    async def main() -> None:
        room = _room(cpus=1)
        assert room.reserve("j1", ONE)
        first = asyncio.ensure_future(_hold(room, "first", ONE))
        second = asyncio.ensure_future(_hold(room, "second", ONE))
        await asyncio.sleep(0)
        room.release("j1")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
        assert room.running == 0

    asyncio.run(main())


async def _hold(room: Room, key: str, resources: Resources, begun: list[str] | None = None) -> None:
    await room.enter(key, resources)
    if begun is not None:
        begun.append(key)
    room.release(key)
