"""The contract of wake-ups: a time or a message brings a run back, and no wake-up is lost."""

from __future__ import annotations

import asyncio

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.ports.records import Ended, Held, Released
from buoy.testing.contracts.harness import (
    ANY,
    Contract,
    StoreHarness,
    claim,
    claimed,
    message,
    register,
    started,
    with_harness,
)

RUN = RunId("run-1")
PARKED = Released(due_at=None, now=0.0)


class WakeContract(Contract):
    @with_harness
    async def test_a_released_task_comes_due_at_its_time(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        due_at = harness.clock.now() + 60.0
        await author.append(store, claimed("r1"), task=Released(due_at=due_at, now=harness.clock.now(), cause="woken"))
        record = await other.run(RUN)
        assert record is not None and [record.holder, record.due_at] == [None, due_at]
        harness.clock.advance(59.9)
        assert await claim(other, runner) == []
        harness.clock.advance(0.1)
        (task,) = await other.claim_tasks(runner, ANY, 1)
        assert [task.run_id, task.due_at, task.cause] == [RUN, due_at, "woken"]

    @with_harness
    async def test_a_message_wakes_a_parked_run(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, PARKED)
        harness.clock.advance(1e6)
        assert await claim(store, runner) == []
        await other.send(message(RUN, "d"))
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_a_message_wakes_a_run_before_its_time(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Released(due_at=harness.clock.now() + 60.0, now=harness.clock.now()))
        await other.send(message(RUN, "d"))
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_a_message_that_was_there_already_wakes_nobody(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await store.send(message(RUN, "d"))
        await author.append(store, claimed("r1"), task=Released(due_at=None, now=0.0, seen=1))
        assert (await store.send(message(RUN, "d"))).duplicate
        assert await claim(store, runner) == []

    @with_harness
    async def test_a_run_let_go_with_an_unseen_message_is_due_at_once(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        now = harness.clock.now()
        for number, due_at in enumerate((None, now + 60.0)):
            author = await harness.author(f"run-{number}").create(store, Held(runner))
            await store.send(message(author.run_id, "1"))
            await store.send(message(author.run_id, "2"))
            await author.append(store, claimed("r1"), task=Released(due_at=due_at, now=now, seen=1))
            assert await claim(store, runner) == [author.run_id]
            # The same without an event.
            assert await store.release(author.run_id, runner, Released(due_at=due_at, now=now, seen=1))
            assert await claim(store, runner) == [author.run_id]
            assert await store.release(author.run_id, runner, Released(due_at=due_at, now=now, seen=2))
            assert await claim(store, runner) == []

    @with_harness
    async def test_a_message_that_races_the_release_is_not_lost(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        for number in range(1, 31):
            let_go = author.draft(claimed("r1"), task=Released(due_at=None, now=0.0, seen=number - 1))
            both = [store.commit([let_go]), other.send(message(RUN, f"{number}"))]
            await asyncio.gather(*(both if number % 2 else reversed(both)))
            author.accept(let_go)
            assert await claim(other, runner) == [RUN], number

    @with_harness
    async def test_a_run_that_ended_is_not_woken(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await author.append(store, claimed("r1"), e.WorkflowCompleted(), task=Ended())
        await other.send(message(RUN, "d"))
        harness.clock.advance(1e6)
        assert await claim(store, runner) == []
        assert await store.unread_runs(runner) == []
        assert await store.orphans(10) == []

    @with_harness
    async def test_a_paused_run_rests_until_a_message_comes(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await author.append(store, claimed("r1"), e.Paused(reason="user"), task=PARKED)
        harness.clock.advance(1e6)
        assert await claim(store, runner) == []
        assert await store.orphans(10) == []
        await store.send(message(RUN, "resume"))
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_a_run_whose_pause_ends_by_itself_is_due_when_its_release_says_so(
        self, harness: StoreHarness
    ) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        now = harness.clock.now()
        await author.append(store, claimed("r1"), e.Paused(reason="rewind", expires_at=now + 30.0), task=PARKED)
        assert await claim(store, runner) == []
        await author.append(store, claimed("r1"), task=Released(due_at=now, now=now))
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_pokes_reach_the_holder_until_it_has_seen_the_message(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner, stranger = await register(store, "r1"), await register(other, "r2")
        await harness.author(RUN).create(store, Held(runner))
        await harness.author("quiet").create(store, Held(runner))
        assert await store.unread_runs(runner) == []
        await other.send(message(RUN, "1"))
        assert await store.unread_runs(runner) == [RUN]
        assert await other.unread_runs(stranger) == []
        await store.mark_read(RUN, runner, 1)
        assert await store.unread_runs(runner) == []
        await other.send(message(RUN, "2"))
        await other.send(message(RUN, "3"))
        assert await store.unread_runs(runner) == [RUN]
        await store.mark_read(RUN, runner, 2)
        assert await store.unread_runs(runner) == [RUN]
        await store.mark_read(RUN, runner, 3)
        assert await store.unread_runs(runner) == []

    @with_harness
    async def test_a_commit_can_say_what_its_writer_has_seen(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await store.send(message(RUN, "1"))
        await author.append(store, claimed("r1"), started(1), seen=1)
        assert await store.unread_runs(runner) == []
        await author.append(store, started(2), seen=0)
        assert await store.unread_runs(runner) == []
        await author.append(store, started(3), task=Released(due_at=None, now=0.0))
        assert await claim(store, runner) == []

    @with_harness
    async def test_what_somebody_else_has_seen_does_not_count(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner, stranger = await register(store, "r1"), await register(store, "r2")
        await harness.author(RUN).create(store, Held(runner))
        await store.send(message(RUN, "1"))
        await store.mark_read(RUN, stranger, 1)
        assert await store.unread_runs(runner) == [RUN]

    @with_harness
    async def test_waiting_for_a_change_ends_in_time(self, harness: StoreHarness) -> None:
        store = await harness.open()
        assert await store.wait_for_change(0.0) in (True, False)
        assert await store.wait_for_change(0.01) in (True, False)
