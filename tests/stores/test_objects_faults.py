"""A crash between any two writes, and a lost answer at any call, of every operation: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.lifecycle import Status
from buoy.engine.services.commits import commit_surely
from buoy.errors import Unavailable
from buoy.ports.records import Ended, RunQuery, Wants
from buoy.ports.store import Store
from buoy.stores.objects.bucket import Exists
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.index.entries import REAP_AFTER_S
from buoy.stores.objects.store import ObjectStore
from buoy.testing.contracts.harness import message, register

from .object_world import CASES, MEDIC, R1, RUN, Case, Crash, Fault, World, end_run, folded, get_hold

NAMES = [case().name for case in CASES]
RETRIES_MAX = 5
GIVES_UP = ("wait for a time", "wait for a message", "wait after a message", "release without an event", "end")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_crash_at_any_write_leaves_the_run_findable_and_whole(name: str, phase: str) -> None:
    tried = 0
    for at in range(1, 100):
        struck = asyncio.run(_crash(CASES[NAMES.index(name)](), Fault(at, phase, dies=True)))
        if not struck:
            break
        tried += 1
    assert tried >= 1, "the fault never struck: nothing was tested"


async def _crash(case: Case, fault: Fault) -> bool:
    world = World(fault)
    store = await world.failing()
    await register(store, "r1")
    await case.prepare(world, store)
    acknowledged = list(world.author.log)
    messages = await store.inbox(RUN)
    fault.armed = True
    try:
        await case.work(world, store)
    except Crash:
        pass
    else:
        # A process may also die right after the last write, which is what this leaves.
        assert not fault.struck
    await _aftermath(world, case, acknowledged, len(messages))
    return fault.struck


async def _aftermath(world: World, case: Case, acknowledged: list[object], messages: int) -> None:
    """Others find the process dead, do its work again and bring every run to its end."""
    medic = await world.fresh()
    await register(medic, MEDIC)
    await medic.declare_dead(R1, "crashed", cause="taken_over", evidence={})
    await _is_whole(medic, acknowledged, messages)
    await case.work(world, medic)
    await _is_whole(medic, acknowledged, messages)
    log = await medic.events(RUN)
    await medic.declare_dead(RunnerId("r0"), "proof", cause="taken_over", evidence={})
    for run_id in await _runs(medic):
        await _bring_to_its_end(world, medic, run_id)
    assert (await medic.events(RUN))[: len(log)] == log
    await _nothing_is_left(world, medic)


async def _is_whole(store: ObjectStore, acknowledged: list[object], messages: int) -> None:
    log = await store.events(RUN)
    assert log[: len(acknowledged)] == acknowledged
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    record = await store.run(RUN)
    if not log:
        assert record is None
        return
    assert record is not None
    assert msgspec.json.encode(record.document) == folded(log)
    inbox = await store.inbox(RUN)
    assert [each.number for each in inbox] == list(range(1, len(inbox) + 1))
    assert len(inbox) >= messages
    assert len({each.dedupe for each in inbox}) == len(inbox)
    await _is_listed_as_it_is(store, record.document.status)


async def _is_listed_as_it_is(store: ObjectStore, status: Status) -> None:
    """No list and no count of another status has the run. Who ended it may list it a moment later."""
    for each in Status:
        query = RunQuery(statuses=(each,))
        named = [record.document.run_id for record in (await store.find_runs(query)).runs]
        assert named.count(RUN) <= (each is status), f"it is {status}, and the list of {each} has {named}"
        assert sum((await store.counts(query)).values()) == len(named)


async def _runs(store: ObjectStore) -> list[str]:
    page = await store.find_runs(RunQuery())
    names: list[str] = [record.document.run_id for record in page.runs]
    assert len(names) == len(set(names))
    assert RUN in names
    return names


async def _bring_to_its_end(world: World, store: ObjectStore, run_id: str) -> None:
    record = await store.run(RunId(run_id))
    assert record is not None
    if record.document.ended:
        if record.has_task:
            assert record.holder == MEDIC or await get_hold(world, store, run_id)
            assert await store.release(RunId(run_id), MEDIC, Ended())
        return
    if record.holder != MEDIC and not await get_hold(world, store, run_id):
        # Only a run that waits for a message may be without a holder; and the message must wake it.
        assert record.document.status in ("waiting_signal", "running", "pending"), record
        assert (record.holder, record.due_at) == (None, None)
        await store.send(message(run_id, "wake up"))
        assert [task.run_id for task in await store.claim_tasks(MEDIC, Wants(), 5)] == [run_id]
    assert await store.claim_tasks(MEDIC, Wants(), 5) == []
    await end_run(world, store, run_id)


async def _nothing_is_left(world: World, store: ObjectStore) -> None:
    """No entry of any index outlives its run; those whose truth never came are reaped at the second look."""
    for _ in range(3):
        await store.claim_tasks(MEDIC, Wants(), 50)
        assert await store.orphans(50) == []
        await store.runners()
        world.clock.advance(REAP_AFTER_S + 1.0)
    assert world.index_keys() == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["before", "after", "refused"])
def test_a_lost_answer_at_any_call_is_survived_by_trying_again(name: str, phase: str) -> None:
    tried = 0
    for at in range(1, 200):
        struck = asyncio.run(_lost_answer(CASES[NAMES.index(name)](), Fault(at, phase, dies=False)))
        if not struck:
            break
        tried += 1
    conditional = phase != "refused" or name != "look at a message"
    assert tried >= 1 or not conditional, "the fault never struck: nothing was tested"


async def _lost_answer(case: Case, fault: Fault) -> bool:
    """The process lives on and tries again, so it is not declared dead: the store alone must sort things out."""
    world = World(fault)
    store = await world.failing()
    await register(store, "r1")
    await case.prepare(world, store)
    acknowledged = list(world.author.log)
    fault.armed = True
    for _ in range(RETRIES_MAX):
        try:
            await case.work(world, store)
            break
        except Unavailable:
            continue
    fault.armed = False
    medic = await world.fresh()
    await register(medic, MEDIC)
    await _is_whole(medic, acknowledged, 0)
    for run_id in await _runs(medic):
        record = await medic.run(RunId(run_id))
        assert record is not None
        if record.holder == R1:
            assert case.name not in GIVES_UP, "it let go of the run, but the store says that it holds it"
            await medic.declare_dead(R1, "stopped", cause="taken_over", evidence={})
        await _bring_to_its_end(world, medic, run_id)
    await medic.declare_dead(R1, "stopped", cause="taken_over", evidence={})
    await _nothing_is_left(world, medic)
    return fault.struck


class Hasty(MemoryBucket):
    """Refuses some creations as those of objects that exist, though they do not: S3 may, when two writers meet."""

    refused = 0

    async def create(self, key: str, data: bytes) -> str:
        if "/log/" in key and self.refused:
            self.refused -= 1
            raise Exists(key)
        return await super().create(key, data)


def test_a_refusal_with_nothing_there_is_unclear_and_no_fence() -> None:
    async def play() -> None:
        world = World(None)
        bucket = Hasty(world.data)
        store = await ObjectStore.on(bucket, clock=world.clock)
        write = world.author.first()
        bucket.refused = 1
        with pytest.raises(Unavailable, match="nothing is there"):
            await store.commit([write])
        assert await store.events(RUN) == []
        bucket.refused = 2
        assert await commit_surely(cast(Store, store), write)
        assert await store.events(RUN) == list(write.events)

    asyncio.run(play())
