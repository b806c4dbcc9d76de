"""The contract of runners: heartbeats, declared deaths, and runs without a runner."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.errors import Problem
from buoy.ports.records import Beat, Ended, Evidence, Held, Orphan, Released
from buoy.ports.store import Store
from buoy.testing.contracts.harness import ANY, Contract, StoreHarness, claim, claimed, register, with_harness

RUN = RunId("run-1")
PROOF: Evidence = {"proof": "lock free", "pid": 7, "sure": True, "age_s": 1.5, "note": None}


async def declare_dead(store: Store, runner: RunnerId, why: str = "killed") -> int:
    freed = await store.declare_dead(runner, why, cause="taken_over", evidence=PROOF)
    assert freed is not None
    return freed


async def declare_silent_dead(store: Store, runner: RunnerId, beat_number: int) -> int | None:
    return await store.declare_dead(runner, "silent", cause="taken_over", evidence=PROOF, beat_number=beat_number)


class RunnerContract(Contract):
    @with_harness
    async def test_a_runner_is_listed_as_it_registered(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await register(store, "r1")
        (record,) = await other.runners()
        assert (record.info.id, record.info.nonce, record.info.pid) == ("r1", "n-r1", 1)
        assert [record.registered_at, record.beat_at] == [harness.clock.now(), harness.clock.now()]
        assert [record.gone_at, record.gone_why] == [None, None]

    @with_harness
    async def test_a_beat_is_seen_by_all(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        began = harness.clock.now()
        harness.clock.advance(30.0)
        assert await store.beat(runner, Beat(number=1, holding=3, errors=1, last_error="it rained"))
        (record,) = await other.runners()
        assert [record.registered_at, record.beat_at] == [began, began + 30.0]
        assert record.beat == Beat(number=1, holding=3, errors=1, last_error="it rained")

    @with_harness
    async def test_the_beat_of_an_unknown_runner_is_refused(self, harness: StoreHarness) -> None:
        store = await harness.open()
        assert not await store.beat(RunnerId("ghost"), Beat(number=1))
        assert await store.runners(gone=9) == []

    @with_harness
    async def test_a_death_releases_all_that_was_held(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        dead, alive = await register(store, "dead"), await register(other, "alive")
        for number in range(12):
            await harness.author(f"run-{number}").create(store, Held(dead))
        await harness.author("theirs").create(other, Held(alive))
        harness.clock.advance(3.0)
        assert await declare_dead(other, dead) == 12
        tasks = await other.claim_tasks(alive, ANY, 100)
        assert sorted(task.run_id for task in tasks) == sorted(f"run-{number}" for number in range(12))
        assert all((task.cause, task.evidence) == ("taken_over", PROOF) for task in tasks)
        record = await store.run(RunId("theirs"))
        assert record is not None and record.holder == alive

    @with_harness
    async def test_a_dead_runner_gets_no_more_work_and_its_beat_is_refused(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        dead = await register(store, "dead")
        await harness.author(RUN).create(store, Released(due_at=harness.clock.now(), now=harness.clock.now()))
        await declare_dead(other, dead)
        assert not await store.beat(dead, Beat(number=2))
        assert await claim(store, dead) == []
        assert await claim(other, await register(other, "alive")) == [RUN]

    @with_harness
    async def test_dead_is_final(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        dead = await register(store, "dead")
        await register(store, "alive")
        await declare_dead(other, dead, "killed")
        gone_at = harness.clock.now()
        harness.clock.advance(5.0)
        await declare_dead(store, dead, "stopped")
        # A store may refuse this aloud, or pay no heed.
        with suppress(Problem):
            await register(store, "dead")
        assert not await store.beat(dead, Beat(number=3))
        assert [record.info.id for record in await store.runners()] == ["alive"]
        by_id = {record.info.id: record for record in await other.runners(gone=9)}
        assert sorted(by_id) == ["alive", "dead"]
        assert [by_id[dead].gone_at, by_id[dead].gone_why] == [gone_at, "killed"]

    @with_harness
    async def test_declaring_dead_again_releases_only_what_it_holds_again(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        dead, alive = await register(store, "dead"), await register(other, "alive")
        author = await harness.author(RUN).create(store, Held(dead))
        assert await declare_dead(other, dead) == 1
        assert await claim(other, alive) == [RUN]
        assert await declare_dead(other, dead) == 0
        record = await other.run(RUN)
        assert record is not None and record.holder == alive
        # A zombie can still append until another runner claims its run. It must not end up as the holder.
        await author.append(store, claimed("dead"), task=Held(dead))
        await declare_dead(other, dead)
        record = await other.run(RUN)
        assert record is not None and record.holder != dead
        assert record.holder == alive or await claim(other, alive) == [RUN]

    @with_harness
    async def test_of_many_declarations_at_once_each_run_is_released_by_one(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(5)
        dead = await register(stores[0], "dead")
        for number in range(8):
            await harness.author(f"run-{number}").create(stores[0], Held(dead))
        assert sum(await asyncio.gather(*(declare_dead(store, dead) for store in stores))) == 8

    @with_harness
    async def test_declaring_a_stranger_dead_is_harmless(self, harness: StoreHarness) -> None:
        store = await harness.open()
        assert await declare_dead(store, RunnerId("ghost")) == 0

    @with_harness
    async def test_runs_of_runners_that_are_not_registered_are_orphans(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Held(RunnerId("ghost")))
        await harness.author("held").create(store, Held(runner))
        await harness.author("parked").create(store, Released(due_at=None, now=0.0))
        await harness.author("due").create(store, Released(due_at=harness.clock.now() + 9.0, now=harness.clock.now()))
        ended = await harness.author("ended").create(store, Held(runner))
        await ended.append(store, claimed("r1"), e.WorkflowCompleted(), task=Ended())
        (orphan,) = await other.orphans(10)
        assert (orphan.run_id, orphan.holder) == (RUN, "ghost")
        assert "ghost" in orphan.why
        assert await other.requeue_orphan(orphan)
        assert await other.orphans(10) == []
        (task,) = await other.claim_tasks(runner, ANY, 10)
        assert (task.run_id, task.cause) == (RUN, "taken_over")

    @with_harness
    async def test_what_the_dead_take_afterwards_is_an_orphan(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        dead = await register(store, "dead")
        await declare_dead(other, dead)
        await harness.author(RUN).create(store, Held(dead))
        (orphan,) = await other.orphans(10)
        assert (orphan.run_id, orphan.holder) == (RUN, dead)

    @with_harness
    async def test_adopting_twice_is_adopting_once(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(4)
        runner = await register(stores[0], "r1")
        await harness.author(RUN).create(stores[0], Held(RunnerId("ghost")))
        (orphan,) = await stores[1].orphans(10)
        assert sorted(await asyncio.gather(*(store.requeue_orphan(orphan) for store in stores))) == [
            False,
            False,
            False,
            True,
        ]
        assert await claim(stores[0], runner) == [RUN]
        assert not await stores[1].requeue_orphan(orphan)
        record = await stores[1].run(RUN)
        assert record is not None and record.holder == runner

    @with_harness
    async def test_nobody_adopts_from_the_living(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Held(runner))
        assert not await store.requeue_orphan(Orphan(RUN, runner, "so they say"))
        assert not await store.requeue_orphan(Orphan(RUN, None, "so they say"))
        assert not await store.requeue_orphan(Orphan(RunId("nobody"), None, "so they say"))
        assert not await store.requeue_orphan(Orphan(RunId("nobody"), RunnerId("ghost"), "so they say"))
        record = await store.run(RUN)
        assert record is not None and record.holder == runner

    @with_harness
    async def test_the_number_of_orphans_is_limited(self, harness: StoreHarness) -> None:
        store = await harness.open()
        for number in range(7):
            await harness.author(f"run-{number}").create(store, Held(RunnerId(f"ghost-{number % 2}")))
        first = await store.orphans(4)
        assert len(first) == 4
        for orphan in first:
            assert await store.requeue_orphan(orphan)
        assert len(await store.orphans(4)) == 3

    @with_harness
    async def test_registering_again_keeps_what_a_living_runner_holds(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Held(runner))
        (record,) = await store.runners()
        await store.register(msgspec.structs.replace(record.info, queues=("fast",)))
        (again,) = await store.runners()
        assert again.info.queues == ("fast",)
        assert (await store.orphans(10), await declare_dead(store, runner)) == ([], 1)

    @with_harness
    async def test_a_first_look_is_noted_once_and_seen_by_all(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        await store.beat(runner, Beat(number=4, holding=2))
        noted_at = harness.clock.advance(130.0)
        found = await other.suspect(runner, 4)
        assert found is not None and [found.suspected_at, found.suspected_beat] == [noted_at, 4]
        harness.clock.advance(60.0)
        assert await store.suspect(runner, 4) == found
        assert await store.runners() == await other.runners() == [found]
        assert found.beat == Beat(number=4, holding=2)

    @with_harness
    async def test_a_beat_clears_the_first_look(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        assert await other.suspect(runner, 0) is not None
        harness.clock.advance(1.0)
        assert await store.beat(runner, Beat(number=1))
        (record,) = await other.runners()
        assert [record.suspected_at, record.suspected_beat] == [None, None]
        assert await other.suspect(runner, 0) is None
        again = await other.suspect(runner, 1)
        assert again is not None and [again.suspected_at, again.suspected_beat] == [harness.clock.now(), 1]
        await store.register(again.info)
        (record,) = await other.runners()
        assert record.suspected_beat is None, "to register is a sign of life"

    @with_harness
    async def test_nobody_looks_at_the_gone_and_the_unknown(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        assert await other.suspect(RunnerId("ghost"), 0) is None
        await declare_dead(other, runner)
        assert await store.suspect(runner, 0) is None
        (record,) = await store.runners(gone=9)
        assert (record.suspected_beat, record.gone_why) == (None, "killed")

    @with_harness
    async def test_a_verdict_on_a_beat_is_refused_after_the_next_one(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Held(runner))
        assert await other.suspect(runner, 0) is not None
        assert await store.beat(runner, Beat(number=1))
        assert await declare_silent_dead(other, runner, 0) is None
        record = await other.run(RUN)
        assert record is not None and record.holder == runner
        assert await store.beat(runner, Beat(number=2))
        assert await other.suspect(runner, 2) is not None
        assert await declare_silent_dead(other, runner, 2) == 1
        assert not await store.beat(runner, Beat(number=3))
        assert await declare_silent_dead(store, runner, 2) in (0, None)

    @with_harness
    async def test_of_a_beat_and_a_verdict_at_once_one_wins(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        for number in range(12):
            runner = await register(store, f"r{number}")
            await harness.author(f"run-{number}").create(store, Held(runner))
            both = [declare_silent_dead(other, runner, 0), store.beat(runner, Beat(number=1))]
            freed, beaten = await asyncio.gather(*(both if number % 2 else reversed(both)))
            if not number % 2:
                freed, beaten = beaten, freed
            assert (freed, beaten) in ((1, False), (None, True))
            held = await store.run(RunId(f"run-{number}"))
            assert held is not None and held.holder == (runner if beaten else None)
