"""The contract of wrong clocks: what is due at once is due for every reader, however far behind its clock is.

`ReadersClockContract` and `OwnClockContract` are its two forms, for stores without and with a clock of their own.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.times import StoreTime
from buoy.ports.records import Beat, Held, Released, RunQuery
from buoy.ports.store import Store
from buoy.testing.contracts.harness import ANY, Contract, StoreHarness, claim, claimed, message, register, with_harness

RUN = RunId("run-1")
HOUR_S = 3600.0


class ClockContract(Contract):
    @with_harness
    async def test_a_new_run_goes_to_one_whose_clock_is_behind(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        runner = await register(behind, "behind")
        await harness.author("said").create(
            store, Released(due_at=harness.clock.now(), now=harness.clock.now(), cause="created")
        )
        harness.clock.advance(1.0)
        await harness.author("unsaid").create(store)
        assert await claim(behind, runner) == ["said", "unsaid"]

    @with_harness
    async def test_a_released_run_goes_to_one_whose_clock_is_behind(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        ahead, runner = await register(store, "ahead"), await register(behind, "behind")
        with_event = await harness.author("event").create(store, Held(ahead))
        await harness.author("bare").create(store, Held(ahead))
        at_once = Released(due_at=harness.clock.now(), now=harness.clock.now(), cause="interrupted")
        await with_event.append(store, claimed("ahead"), task=at_once)
        assert await store.release(RunId("bare"), ahead, at_once)
        assert sorted(await claim(behind, runner)) == ["bare", "event"]

    @with_harness
    async def test_what_the_dead_held_goes_to_one_whose_clock_is_behind(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        dead, runner = await register(store, "dead"), await register(behind, "behind")
        await harness.author("never-due").create(store, Held(dead))
        await harness.author("was-due").create(store, Released(due_at=harness.clock.now(), now=harness.clock.now()))
        assert await claim(store, dead) == ["was-due"]
        await harness.author("timer").create(
            store, Released(due_at=harness.clock.now() + 60.0, now=harness.clock.now())
        )
        harness.clock.advance(60.0)
        assert await claim(store, dead) == ["timer"]
        harness.clock.advance(30.0)
        await store.declare_dead(dead, "it is dead", cause="taken_over", evidence={})
        since = {name: await due_at(store, name) for name in ("never-due", "timer", "was-due")}
        now = harness.clock.now()
        assert since == {"never-due": now, "timer": now - 30.0, "was-due": now - 90.0}, "each at its own place"
        assert sorted(await claim(behind, runner)) == ["never-due", "timer", "was-due"]

    @with_harness
    async def test_an_adopted_run_goes_to_one_whose_clock_is_behind(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        runner = await register(behind, "behind")
        await harness.author(RUN).create(store, Held(RunnerId("ghost")))
        (orphan,) = await store.orphans(10)
        assert await store.requeue_orphan(orphan)
        assert await claim(behind, runner) == [RUN]

    @with_harness
    async def test_a_woken_run_goes_to_one_whose_clock_is_behind(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        ahead, runner = await register(store, "ahead"), await register(behind, "behind")
        await harness.author("parked").create(store, Released(due_at=None, now=0.0))
        await harness.author("timer").create(
            store, Released(due_at=harness.clock.now() + 60.0, now=harness.clock.now())
        )
        held = await harness.author("held").create(store, Held(ahead))
        for run_id in ("parked", "timer", "held"):
            await store.send(message(run_id, "d"))
        await held.append(store, claimed("ahead"), task=Released(due_at=None, now=0.0))
        assert sorted(await claim(behind, runner)) == ["held", "parked", "timer"]

    @with_harness
    async def test_what_is_due_at_once_is_told_so_by_every_clock(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        runner = await register(behind, "behind")
        since = harness.clock.now()
        await harness.author(RUN).create(store, Released(due_at=since, now=since))
        harness.clock.advance(10.0)
        there, here = await behind.run(RUN), await store.run(RUN)
        assert here is not None and here.due_at == since
        assert there is not None and there.due_at is not None and there.due_at <= await behind.now()
        (task,) = await behind.claim_tasks(runner, ANY, 1)
        assert task.due_at <= await behind.now()

    @with_harness
    async def test_a_message_does_not_take_the_cause_from_what_is_due(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        dead, runner = await register(store, "dead"), await register(behind, "behind")
        await harness.author(RUN).create(store, Held(dead))
        await store.declare_dead(dead, "it is dead", cause="taken_over", evidence={"proof": "lock"})
        await behind.send(message(RUN, "d"))
        (task,) = await behind.claim_tasks(runner, ANY, 1)
        assert (task.cause, task.evidence) == ("taken_over", {"proof": "lock"})

    @with_harness
    async def test_a_message_makes_a_timer_due_by_every_clock(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        await harness.author(RUN).create(store, Released(due_at=harness.clock.now() + 10.0, now=harness.clock.now()))
        await store.send(message(RUN, "d"))
        (task,) = await store.claim_tasks(runner, ANY, 1)
        assert not task.by_clock

    @with_harness
    async def test_work_that_is_due_at_once_and_timers_keep_their_order(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        for number, delay_s in enumerate((0.0, 15.0, 0.0, 35.0, 0.0)):
            await harness.author(f"run-{number}").create(
                store, Released(due_at=harness.clock.now() + delay_s, now=harness.clock.now())
            )
            harness.clock.advance(10.0)
        assert await claim(store, runner, limit=3) == ["run-0", "run-2", "run-1"]
        assert await claim(store, runner) == ["run-4"]
        harness.clock.advance(20.0)
        assert await claim(store, runner) == ["run-3"]

    @with_harness
    async def test_much_work_that_is_due_at_once_does_not_starve_a_timer(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        await harness.author("timer").create(store, Released(due_at=harness.clock.now() + 5.0, now=harness.clock.now()))
        harness.clock.advance(10.0)
        for number in range(300):
            await harness.author(f"run-{number}").create(
                store, Released(due_at=harness.clock.now(), now=harness.clock.now())
            )
        assert (await claim(store, runner, limit=3))[0] == "timer"


class ReadersClockContract(Contract):
    """A store without a clock: each reader asks its own."""

    @with_harness
    async def test_a_timer_is_kept_by_the_clock_of_whoever_looks(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(60.0)
        runner, late = await register(store, "right"), await register(behind, "late")
        await harness.author(RUN).create(store, Released(due_at=harness.clock.now() + 30.0, now=harness.clock.now()))
        harness.clock.advance(30.0)
        assert await claim(behind, late) == []
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_a_timer_that_is_given_back_as_it_was_is_left_to_each_one_s_clock(
        self, harness: StoreHarness
    ) -> None:
        ahead, right = await harness.open(), await harness.open(60.0)
        first, second = await register(ahead, "ahead"), await register(right, "right")
        await harness.author(RUN).create(right, Released(due_at=harness.clock.now() + 10.0, now=harness.clock.now()))
        harness.clock.advance(10.0)
        (task,) = await ahead.claim_tasks(first, ANY, 1)
        assert task.by_clock
        as_it_was = Released(due_at=float(task.due_at), now=float(task.claimed_at), by_clock=True)
        assert await ahead.release(RUN, first, as_it_was)
        assert await claim(right, second) == []
        harness.clock.advance(60.0)
        (task,) = await right.claim_tasks(second, ANY, 1)
        assert task.by_clock
        assert await right.release(RUN, second, Released(due_at=float(task.due_at), now=float(task.claimed_at)))
        (task,) = await ahead.claim_tasks(first, ANY, 1)
        assert not task.by_clock, "given back as due at once"


class OwnClockContract(Contract):
    """A store with a clock of its own: a writer's clock counts only by the distances that it measures."""

    @with_harness
    async def test_a_timer_is_kept_by_the_store_whoever_writes_and_looks(self, harness: StoreHarness) -> None:
        ahead, behind = await harness.open(-HOUR_S), await harness.open(HOUR_S)
        runners = [await register(ahead, "ahead"), await register(behind, "behind")]
        for by_s in (-HOUR_S, 0.0, HOUR_S):
            dated = harness.clock.now() + by_s
            author = await harness.author(f"created-{by_s}").create(ahead, Released(due_at=dated + 30.0, now=dated))
            held = await harness.author(f"released-{by_s}").create(behind, Held(runners[0]))
            assert await behind.release(held.run_id, runners[0], Released(due_at=dated + 30.0, now=dated))
            for run_id in (author.run_id, held.run_id):
                assert await due_at(ahead, run_id) == harness.clock.now() + 30.0
        harness.clock.advance(29.0)
        assert [await claim(ahead, runners[0]), await claim(behind, runners[1])] == [[], []]
        harness.clock.advance(1.0)
        assert len(await claim(behind, runners[1], limit=3) + await claim(ahead, runners[0])) == 6

    @with_harness
    async def test_what_is_due_at_once_is_the_writers_word(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        for by_s in (-HOUR_S, HOUR_S):
            dated = harness.clock.now() + by_s
            await harness.author(f"now-{by_s}").create(store, Released(due_at=dated, now=dated))
            await harness.author(f"before-{by_s}").create(store, Released(due_at=dated - 10.0, now=dated))
        assert [await due_at(store, name) for name in (f"now-{HOUR_S}", f"before-{-HOUR_S}")] == [
            harness.clock.now(),
            harness.clock.now() - 10.0,
        ]
        tasks = await store.claim_tasks(runner, ANY, 10)
        assert [task.run_id.partition("-")[0] for task in tasks] == ["before", "before", "now", "now"]
        assert {task.claimed_at for task in tasks} == {harness.clock.now()}

    @with_harness
    async def test_a_timer_that_is_given_back_as_it_was_is_due_for_every_reader(self, harness: StoreHarness) -> None:
        store, behind = await harness.open(), await harness.open(HOUR_S)
        first, second = await register(store, "first"), await register(behind, "second")
        await harness.author(RUN).create(store, Released(due_at=harness.clock.now() + 10.0, now=harness.clock.now()))
        await harness.author("later").create(
            store, Released(due_at=harness.clock.now() + 15.0, now=harness.clock.now())
        )
        harness.clock.advance(20.0)
        task = (await behind.claim_tasks(second, ANY, 1))[0]
        assert (task.run_id, task.by_clock) == (RUN, False)
        again = Released(due_at=float(task.due_at), now=float(task.claimed_at), by_clock=task.by_clock)
        assert await behind.release(RUN, second, again)
        assert await claim(store, first) == [RUN, "later"], "at its old place"

    @with_harness
    async def test_records_are_dated_by_the_store_whoever_writes_them(self, harness: StoreHarness) -> None:
        behind = await harness.open(HOUR_S)
        assert await behind.now() == harness.clock.now()
        runner = await register(behind, "r1")
        author = harness.author(RUN, behind_s=HOUR_S)
        await author.create(behind, Held(runner))
        harness.clock.advance(5.0)
        await author.append(behind, claimed("r1"))
        harness.clock.advance(5.0)
        sent = msgspec.structs.replace(message(RUN, "d"), sent_at=harness.clock.now() - HOUR_S)
        await behind.send(sent)
        harness.clock.advance(5.0)
        await behind.beat(runner, Beat(number=1))
        record, now = await behind.run(RUN), harness.clock.now()
        assert record is not None
        assert (float(record.updated_at), record.document.updated_at) == (now - 10.0, now - 10.0 - HOUR_S)
        assert [each.sent_at for each in await behind.inbox(RUN)] == [now - 5.0]
        (known,) = await behind.runners()
        assert [known.registered_at, known.beat_at] == [now - 15.0, now]
        page = await behind.find_runs(RunQuery(updated_before=StoreTime(now - 9.0)))
        assert [each.updated_at for each in page.runs] == [now - 10.0]
        assert (await behind.find_runs(RunQuery(updated_before=StoreTime(now - 10.0)))).runs == ()

    @with_harness
    async def test_another_connection_goes_by_the_same_clock(self, harness: StoreHarness) -> None:
        store = await harness.open(HOUR_S)
        again = await store.reopen()
        try:
            assert again.has_clock
            assert await again.now() == harness.clock.now()
        finally:
            await again.close()

    @with_harness
    async def test_a_document_that_is_written_again_does_not_look_newer(self, harness: StoreHarness) -> None:
        store = await harness.open(HOUR_S)
        author = await harness.author(RUN, behind_s=HOUR_S).create(store, Released(due_at=None, now=0.0))
        begun = harness.clock.now()
        harness.clock.advance(30.0)
        record = await store.run(RUN)
        assert record is not None
        assert await store.archive.rewrite(RUN, record.document, len(author.log))
        assert [each.updated_at for each in (await store.find_runs(RunQuery())).runs] == [begun]


async def due_at(store: Store, run_id: str) -> StoreTime | None:
    record = await store.run(RunId(run_id))
    assert record is not None
    return record.due_at
